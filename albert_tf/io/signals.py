# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Signals: the first one asks a program to stop; the second one ends a script, or its training."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from albert_tf.io.interrupts import STOP_SIGNALS, end_process

#: Signals this soon after the first one are the same request: GNU timeout sends two at once, and a
#: launcher passes on a Ctrl-C that the terminal has sent to all its processes. A person takes
#: longer to press Ctrl-C again.
_ONE_REQUEST_SECONDS = 0.5
#: How long an interrupted main thread may take to clean up. No exception may reach it: while
#: native code runs, or where Python discards exceptions, as in finalizers.
_CLEAN_UP_SECONDS = 20.0


class StopSignals:
    """Handles the STOP_SIGNALS in a with block.

    The first signal sets `received`. A second one, at least half a second later, ends a script at
    once with the signal's `exit_status`, whatever the main thread is doing. Outside of scripts it
    raises KeyboardInterrupt in the main thread as soon as that runs Python again: a library
    function never ends the process. Signals that were ignored when the process started stay
    ignored. Outside of the main thread the block does nothing.

    Args:
      on_first: called with the first signal at once, in another thread. None in scripts, around
        everything: the first signal raises KeyboardInterrupt in the main thread, and the process
        ends with the signal's status even if the main thread does not respond.

    Attributes:
      received: the first signal, or None.
    """

    def __init__(self, on_first: Callable[[int], None] | None = None) -> None:
        self._on_first = on_first
        # Whether the next call of the handler raises KeyboardInterrupt.
        self._raises = on_first is None
        self._watcher: threading.Thread | None = None
        self.received: int | None = None

    def __enter__(self) -> StopSignals:
        """Installs the handlers."""
        former = _handlers()
        if not former:
            return self
        self._in_script = self._on_first is None or any(map(_is_ours, former.values()))
        # Python runs handlers only between its own instructions, and a call of the training loop is
        # one. But the C handler writes each signal to this socket, which a thread reads at once.
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        self._former = {n: handler for n, handler in former.items() if handler != signal.SIG_IGN}
        for number in self._former:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores the former handlers."""
        if self._watcher is None:
            return
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self._writer.close()
        self._watcher.join()
        self._reader.close()

    def _handle(self, number: int, _: object) -> None:
        self.received = self.received or number
        if self._raises:
            self._raises = False
            raise KeyboardInterrupt

    def _watch(self) -> None:
        began = None
        while True:
            try:
                received = self._reader.recv(1)
            except socket.timeout:
                _end(self.received)
            if not received:
                return
            number = received[0]
            if signal.getsignal(number) != self._handle:
                continue  # Other code handles it for now.
            self.received = self.received or number
            if began is None:
                if self._on_first is None:
                    self._reader.settimeout(_CLEAN_UP_SECONDS)
                else:
                    self._on_first(number)
                # Started after `on_first`, as signals that came with the first one wait meanwhile.
                began = time.monotonic()
            elif time.monotonic() - began > _ONE_REQUEST_SECONDS:
                if self._in_script:
                    _end(number)
                self._raises = True
                _thread.interrupt_main()  # The handler may have run before the line above.
                return


def _handlers() -> dict[int, Any]:
    """Returns the handlers that can be replaced and restored: none outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    return {n: handler for n, handler in handlers.items() if handler is not None}


def _is_ours(handler: object) -> bool:
    return isinstance(getattr(handler, "__self__", None), StopSignals)


@contextlib.contextmanager
def kept_handlers(in_scripts: Any) -> Iterator[None]:
    """Restores the handlers of signals after a with block, whose native code may replace them.

    Args:
      in_scripts: handles the signals of a script meanwhile, as for signal.signal.
    """
    former = _handlers()
    try:
        for number in former:
            if _is_ours(former[number]):
                signal.signal(number, in_scripts)
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _end(number: int) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"\n")  # After what the cursor's line has, such as ^C.
    end_process(number)
