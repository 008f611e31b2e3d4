# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs can outlive the readers of their output."""

import os
import pty
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OUTLIVING = """
import os, sys
from albert_tf.io.streams import outliving_readers
with outliving_readers():
    print("begun", flush=True)
    sys.stdin.read()
    for _ in range(3):
        print("dropped " * 2000)
        print("dropped", file=sys.stderr, flush=True)
        os.write(2, b"by native code")
    print("buffered")
print("after", flush=True)
print("after", file=sys.stderr)
with open(sys.argv[1], "w") as f:
    f.write("finished")
"""


def test_a_block_outlives_the_reader_of_its_output(tmp_path):
    command = [sys.executable, "-c", OUTLIVING, tmp_path / "end"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        assert process.stdout.readline() == b"begun\n"
        process.stdout.close()
        process.stdin.close()
        assert process.wait(60) == 0
    assert (tmp_path / "end").read_text() == "finished"


def test_a_block_outlives_its_terminal(tmp_path):
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", OUTLIVING, tmp_path / "end"]
    pipes = {"stdin": subprocess.PIPE, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        os.close(terminal)
        with open(controller, "rb", buffering=0) as screen:
            while screen.read(1) != b"\n":
                pass
        process.stdin.close()
        assert process.wait(60) == 0
    assert (tmp_path / "end").read_text() == "finished"


def test_what_has_a_reader_is_printed_in_such_a_block(tmp_path):
    command = [sys.executable, "-c", OUTLIVING, tmp_path / "end"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.stdout.splitlines() == [b"begun", *[b"dropped " * 2000] * 3, b"buffered", b"after"]
    assert done.stderr == b"dropped\nby native code" * 3 + b"after\n"
