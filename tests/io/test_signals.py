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

from albert_tf.io.interrupts import STOP_SIGNALS

ROOT = Path(__file__).parents[2]
SCRIPT = """
import hashlib, sys, time
from albert_tf.cli import script
from albert_tf.io import interrupts, signals

signals._CLEAN_UP_SECONDS = 2.0

def sleep():
    try:
        print("asleep", flush=True)
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)

def compute():  # In C, where no exception comes.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)

def save(seconds=5):
    with signals.StopSignals(lambda number: print("received", number, flush=True)) as stop:
        print("saving", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)
    sys.exit(interrupts.exit_status(stop.received))

def save_briefly():
    save(2.5)

def main(what):
    print("ready", flush=True)
    globals()[what]()

script.run(main, lambda: None, arguments=("WHAT",))
"""
NATIVE = "hashlib.pbkdf2_hmac('sha1', b'', b'', 2**20)"
#: A program of a user, who has interrupted a library function before.
PROGRAM = """
import hashlib, time
from albert_tf.io import signals

def announce(number):
    print("received", number, flush=True)

def work():
    with signals.StopSignals(announce) as stop:
        print("working", flush=True)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            {step}

try:
    work()
except KeyboardInterrupt:
    print("interrupted", flush=True)
time.sleep(0.2)  # No other signal comes.
print("alive", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    path = tmp_path / "script.py"

    def begin(what, word="ready", program=SCRIPT, **kwargs):
        path.write_text(program)
        process = subprocess.Popen(
            [sys.executable, path, what],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )
        while process.stdout.readline() != f"{word}\n":
            assert process.poll() is None
        return process

    return begin


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_ends_a_script_with_its_status_and_one_line(start, number):
    process = start("sleep", "asleep")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert (out, err) == ("cleaned up\n", f"Stopped by {number.name}.\n")


def test_a_signal_ends_a_script_even_in_native_code(start):
    process = start("compute")
    time.sleep(1.0)  # It has begun to compute.
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert time.monotonic() - began > 1.5
    assert err == "\nStopped by SIGTERM.\n"


def test_a_second_signal_ends_the_script_at_once(start):
    process = start("save", "saving")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - began < 3
    assert (out, err) == ("received 15\n", "\nStopped by SIGINT.\n")


def test_two_signals_at_once_are_one_request(start):
    # As GNU timeout sends them: to the command, and to all in its group.
    process = start("save_briefly", "saving")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (143, "received 15\n", "")


def test_signals_that_were_ignored_at_the_start_stay_ignored(start):
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    process = start("save_briefly", "saving", **ignore)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (143, "received 15\n")


@pytest.mark.parametrize("step", ["time.sleep(0.01)", NATIVE], ids=["python", "native"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_interrupts_a_library_function_and_ends_no_process(start, step, number):
    process = start("", "working", PROGRAM.format(step=step))
    process.send_signal(number)
    time.sleep(0.7)
    process.send_signal(number)
    out, err = process.communicate(timeout=90)
    assert (process.returncode, err) == (0, "")
    assert out == f"received {number:d}\ninterrupted\nalive\n"


def test_a_signal_that_native_code_handles_is_ours_again_afterwards(start):
    program = """
import signal, time
from albert_tf.io import signals
with signals.StopSignals(lambda number: None) as stop:
    with signals.kept_handlers(signal.SIG_DFL):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # As TensorFlow does.
    signal.raise_signal(signal.SIGTERM)
    print("received", stop.received, flush=True)
"""
    process = start("", "received 15", program)
    assert process.wait(30) == 0
