# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT: the first one asks a program to stop, the second one ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

from albert_tf.io.interrupts import exit_status, stopped_by

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Signals that follow the first one so soon are the same request: GNU timeout sends two at once,
#: and a launcher passes on a Ctrl-C that the terminal has sent to all its processes. A person who
#: presses Ctrl-C again takes longer.
_ONE_REQUEST_SECONDS = 0.5
#: An interrupted main thread gets so long to clean up; it may be where no exception reaches it,
#: such as in TensorFlow's waiting for other machines.
_CLEAN_UP_SECONDS = 20.0


class StopSignals:
    """Takes SIGTERM and SIGINT while it is entered; a context manager.

    The first one sets `received`. A second one, half a second or more later, ends the process at
    once with the status of `exit_status`, wherever its main thread is. Signals that the process was
    started to ignore, as by nohup, stay ignored. Entered outside of the main thread, it does
    nothing.

    Args:
      on_first: called with the first signal at once, in another thread. None: the first signal
        raises KeyboardInterrupt in the main thread instead, and the process ends with the signal's
        status even if that goes unheard.

    Attributes:
      received: the first signal, None before.
    """

    def __init__(self, on_first: Callable[[int], None] | None = None) -> None:
        self._on_first = on_first
        self._raised = False
        self._watcher: threading.Thread | None = None
        self.received: int | None = None

    def __enter__(self) -> StopSignals:
        """Installs the handlers."""
        if threading.current_thread() is not threading.main_thread():
            return self
        # Python runs handlers between two of its own instructions only, and a call of the training
        # loop is one. What the C handler writes into the socket can be read at any time.
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        former = {number: signal.getsignal(number) for number in STOP_SIGNALS}
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
        if self._on_first is None and not self._raised:
            self._raised = True
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
                continue  # Someone else has taken it over for a while.
            self.received = self.received or number
            if began is None:
                if self._on_first is None:
                    self._reader.settimeout(_CLEAN_UP_SECONDS)
                else:
                    self._on_first(number)
                # Not before `on_first`, during which a signal that came with the first one waits.
                began = time.monotonic()
            elif time.monotonic() - began > _ONE_REQUEST_SECONDS:
                _end(number)


@contextlib.contextmanager
def kept_handlers() -> Iterator[None]:
    """Installs again what something within has replaced without Python's knowledge.

    As TensorFlow does when a process joins a cluster: its own handler of SIGTERM only tells
    tf.distribute.experimental.PreemptionCheckpointHandler, and otherwise the signal is lost.
    """
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                signal.signal(number, signal.getsignal(number))


def _end(number: int) -> None:
    os.write(2, f"\n{stopped_by(number)}\n".encode())
    os._exit(exit_status(number))
