# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Signals outside of training, with real processes and signals."""

from __future__ import annotations

import os
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


def test_while_native_code_waits_a_signal_ends_a_script(start):
    program = """
import signal, time
from albert_tf.io.signals import StopSignals, native_waiting
with StopSignals(first_raises=True):
    with native_waiting():
        print("working", flush=True)
        time.sleep(60)
"""
    process = start(program)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
