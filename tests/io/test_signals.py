# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Signals outside of training, with real processes and signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albert_tf.io.signals import STOP_SIGNALS

ROOT = Path(__file__).parents[2]
SCRIPT = """
import time
from albert_tf.cli import script

def main():
    try:
        print("working", flush=True)
        time.sleep(60)
    finally:
        time.sleep(0.3)
        print("cleaned up", flush=True)

script.run(main, lambda: None)
"""
PROGRAM = """
import time
from albert_tf.io.signals import StopSignals

try:
    with StopSignals() as stop:
        print("working", flush=True)
        while not stop.received:
            time.sleep(0.01)
        print("received", stop.received, flush=True)
        time.sleep(2)
        print("saved")
except (KeyboardInterrupt, SystemExit):
    print("interrupted")
"""


@pytest.fixture
def start(tmp_path):
    path = tmp_path / "script.py"

    def begin(program, **kwargs):
        path.write_text(program)
        process = subprocess.Popen(
            [sys.executable, path],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )
        while process.stdout.readline() != "working\n":
            assert process.poll() is None
        return process

    return begin


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_ends_a_script_with_its_status_and_one_line(start, number):
    process = start(SCRIPT)
    process.send_signal(number)
    time.sleep(0.1)
    process.send_signal(number)  # GNU timeout sends one to the command and one to its group.
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert (out, err) == ("cleaned up\n", f"Stopped by {number.name}.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("pause", "end"), [(0.1, "saved"), (0.7, "interrupted")])
def test_a_second_signal_interrupts_a_library_function_unless_it_is_the_same_request(
    start, number, pause, end
):
    process = start(PROGRAM)
    process.send_signal(number)
    assert process.stdout.readline() == f"received {number:d}\n"
    time.sleep(pause)
    process.send_signal(number)
    assert process.communicate(timeout=30) == (f"{end}\n", "")
    assert process.returncode == 0


def test_signals_that_were_ignored_at_the_start_stay_ignored(start):
    process = start(PROGRAM, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[0] == "received 15\nsaved\n"


@pytest.mark.parametrize(("in_script", "status"), [(True, -15), (False, 0)])
def test_while_native_code_waits_a_signal_ends_scripts_only(start, in_script, status):
    program = f"""
import signal, time
from albert_tf.io.signals import StopSignals, native_waiting
with StopSignals(first_raises={in_script}) as stop:
    with native_waiting():
        print("working", flush=True)
        while not stop.received:
            time.sleep(0.01)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # As TensorFlow does.
    assert signal.getsignal(signal.SIGTERM) == stop._handle
"""
    process = start(program)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == status


OUTLIVING = """
import os, sys
from albert_tf.io.signals import outliving_readers
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


@pytest.mark.parametrize("make", [os.pipe, pty.openpty])
def test_a_block_outlives_the_reader_of_its_output_or_its_terminal(tmp_path, make):
    reader, writer = make()
    command = [sys.executable, "-c", OUTLIVING, tmp_path / "end"]
    pipes = {"stdin": subprocess.PIPE, "stdout": writer, "stderr": writer}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        os.close(writer)
        with open(reader, "rb", buffering=0) as output:
            line = b"".join(iter(lambda: output.read(1), b"\n"))
        assert line.strip() == b"begun"
        process.stdin.close()
        assert process.wait(60) == 0
    assert (tmp_path / "end").read_text() == "finished"


def test_what_has_a_reader_is_printed_in_such_a_block(tmp_path):
    command = [sys.executable, "-c", OUTLIVING, tmp_path / "end"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.stdout.splitlines() == [b"begun", *[b"dropped " * 2000] * 3, b"buffered", b"after"]
    assert done.stderr == b"dropped\nby native code" * 3 + b"after\n"
