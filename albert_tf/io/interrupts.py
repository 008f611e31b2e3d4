# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The signals that stop a program, and what they do while it is still importing.

Scripts call `end_on_interrupt` before their other imports, which take the better part of a second;
hence this module imports next to nothing. `albert_tf.io.signals` handles what comes later.
"""

from __future__ import annotations

import os
import signal

#: Besides SIGTERM and Ctrl-C: a closed terminal, and the warning before a Slurm job's time is over.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def exit_status(number: int) -> int:
    """Returns the exit status of a process stopped by a signal, as shells report it."""
    return 128 + number


def stopped_by(number: int) -> str:
    """Returns the message of a program that a signal has stopped."""
    return f"Stopped by {signal.Signals(number).name}."


def stop_exception(number: int) -> BaseException:
    """Returns what to raise when a signal has stopped the work of a library function.

    KeyboardInterrupt for Ctrl-C, as Python programs expect it; otherwise SystemExit with the
    signal's exit status. Notebooks survive both.
    """
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(exit_status(number))


def end_process(number: int, _: object = None) -> None:
    """Ends the process at once with one line and the signal's exit status; a signal handler."""
    try:
        os.write(2, f"{stopped_by(number)}\n".encode())
    finally:  # Also if nobody reads the line.
        os._exit(exit_status(number))


def end_on_interrupt() -> None:
    """Makes SIGINT end the process with one line, until `albert_tf.cli.script` handles it.

    A process that was started with SIGINT ignored, as in the background, continues to ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_process)
