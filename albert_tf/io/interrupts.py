# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a script is still importing prints one line instead of a stack trace.

Scripts call `end_on_interrupt` before their other imports, which take the better part of a second;
hence this module imports next to nothing. `albert_tf.io.signals` handles what comes later.
"""

from __future__ import annotations

import os
import signal


def exit_status(number: int) -> int:
    """Returns the exit status of a process stopped by a signal, as shells report it."""
    return 128 + number


def stopped_by(number: int) -> str:
    """Returns the message of a program that a signal has stopped."""
    return f"Stopped by {signal.Signals(number).name}."


def end_on_interrupt() -> None:
    """Makes SIGINT end the process with one line, until `albert_tf.cli.script` handles it.

    A process that was started with SIGINT ignored, as in the background, continues to ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, _: object) -> None:
    os.write(2, f"{stopped_by(number)}\n".encode())
    os._exit(exit_status(number))
