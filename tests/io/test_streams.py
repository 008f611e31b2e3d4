# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.io.streams: what of standard error is dropped, and that nothing else is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BODY = "os.write(2, b'noise: 1\\nan error\\n\\xffnoise: 2\\nnoise: 3\\n'); "
CODE = """
import os, sys
from albert_tf.io.streams import standard_error_without
with standard_error_without(["noise: [0-9]$"]):
    {}
print("after", file=sys.stderr)
"""


def standard_error(body, **kwargs):
    code = CODE.format(body)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, timeout=60, **kwargs).stderr


def test_only_lines_that_match_are_dropped():
    assert standard_error(BODY) == b"an error\n\xffnoise: 2\nafter\n"


def test_what_a_process_says_before_it_crashes_is_passed_on():
    assert standard_error(BODY + "os.write(2, b'fatal'); os.abort()") == (
        b"an error\n\xffnoise: 2\nfatal"
    )


def test_an_exception_leaves_standard_error_as_it_was():
    found = standard_error("print('noise: 1', file=sys.stderr); raise SystemExit('noise: 2')")
    assert found == b"noise: 2\n"


def test_everything_passes_without_sed():
    environment = {**os.environ, "PATH": ""}
    found = standard_error(BODY, env=environment)
    assert found == b"noise: 1\nan error\n\xffnoise: 2\nnoise: 3\nafter\n"


def test_a_closed_standard_error_is_no_error():
    code = CODE.format("print('inside')")
    done = subprocess.run(
        ["bash", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert (done.returncode, done.stdout) == (0, b"inside\nafter\n")
