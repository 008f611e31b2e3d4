# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Standard error: matching lines are dropped, and no others."""

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


def test_only_matching_lines_are_dropped():
    assert standard_error(BODY) == b"an error\n\xffnoise: 2\nafter\n"


def test_messages_before_a_crash_are_passed_on():
    assert standard_error(BODY + "os.write(2, b'fatal'); os.abort()") == (
        b"an error\n\xffnoise: 2\nfatal"
    )


def test_standard_error_is_restored_after_an_exception():
    body = "print('noise: 1', file=sys.stderr); raise SystemExit('noise: 2')"
    assert standard_error(body) == b"noise: 2\n"


def test_without_sed_nothing_is_dropped():
    written = standard_error(BODY, env={**os.environ, "PATH": ""})
    assert written == b"noise: 1\nan error\n\xffnoise: 2\nnoise: 3\nafter\n"


def test_a_closed_standard_error_is_no_error():
    code = CODE.format("print('inside')")
    done = subprocess.run(
        ["bash", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert (done.returncode, done.stdout) == (0, b"inside\nafter\n")
