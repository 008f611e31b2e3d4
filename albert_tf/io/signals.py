# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Signals that stop a program."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

#: Besides SIGTERM and Ctrl-C: a closed terminal, and the warning before a Slurm job's time is over.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
#: Signals this soon after the first one are the same request: GNU timeout sends two at once, and a
#: launcher passes on a Ctrl-C that the terminal has sent to all its processes. A person takes
#: longer to press Ctrl-C again.
_ONE_REQUEST_SECONDS = 0.5


def stop_exception(number: int) -> BaseException:
    """Returns what to raise when a signal stops the work: no library function ends the process.

    KeyboardInterrupt for Ctrl-C, as Python programs expect it; otherwise SystemExit with the status
    that shells report. Notebooks survive both.
    """
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


class StopSignals:
    """Handles the STOP_SIGNALS in a with block.

    The first signal sets `received`. A second one, at least half a second later, raises its
    `stop_exception` as soon as the main thread runs Python again. Signals that were ignored when
    the process started stay ignored. Outside of the main thread the block does nothing.

    Args:
      first_raises: whether the first signal raises its exception, too, as in scripts.

    Attributes:
      received: the first signal, or None.
    """

    def __init__(self, first_raises: bool = False) -> None:
        self.received = None
        self.first_raises = first_raises

    def __enter__(self) -> StopSignals:
        """Installs the handlers."""
        self._former = _handlers()
        for number, handler in self._former.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores the former handlers."""
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: object) -> None:
        if self.received is None:
            self.received, self._since = number, time.monotonic()
            if not self.first_raises:
                return
        elif time.monotonic() - self._since < _ONE_REQUEST_SECONDS:
            return
        raise stop_exception(number)


def _handlers() -> dict[int, Any]:
    """Returns the handlers that can be replaced and restored: none outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = zip(STOP_SIGNALS, map(signal.getsignal, STOP_SIGNALS))
    return {number: handler for number, handler in handlers if handler is not None}


@contextlib.contextmanager
def native_waiting() -> Iterator[None]:
    """For native code that waits long, and lets no handler of Python run or replaces it.

    In scripts a signal ends the process meanwhile. Afterwards all handlers are as before.
    """
    former = _handlers()
    for number, handler in former.items():
        if isinstance(getattr(handler, "__self__", None), StopSignals):
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
