# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a script is still importing: one line in place of a stack trace.

Scripts call `end_on_interrupt` before their other imports, which take a good part of a second
together. So this module imports next to nothing.
"""

from __future__ import annotations

import os
import signal


def exit_status(number: int) -> int:
    """The exit status of a process that was stopped by a signal, as a shell would give it."""
    return 128 + number


def stopped_by(number: int) -> str:
    """What a program says that a signal has ended."""
    return f"Stopped by {signal.Signals(number).name}."


def end_on_interrupt() -> None:
    """Lets SIGINT end the process with one line, until `albert_tf.cli.script` handles it.

    A process that was started to ignore the signal, as by nohup, goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, _: object) -> None:
    os.write(2, f"{stopped_by(number)}\n".encode())
    os._exit(exit_status(number))
