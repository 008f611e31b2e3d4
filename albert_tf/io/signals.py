# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT: the first one asks a program to stop, the second one ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

from albert_tf.io.interrupts import exit_status, stopped_by

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Signals this soon after the first one are the same request: GNU timeout sends two at once, and a
#: launcher passes on a Ctrl-C that the terminal has sent to all its processes. A person takes
#: longer to press Ctrl-C again.
_ONE_REQUEST_SECONDS = 0.5
#: How long an interrupted main thread may take to clean up. No exception may reach it, for example
#: while TensorFlow waits for other machines.
_CLEAN_UP_SECONDS = 20.0
#: Written to the watcher instead of a signal's number: raise the discarded exception again.
_DISCARDED = 0
#: By then sys.unraisablehook has returned; an exception in it would be discarded as well.
_HOOK_SECONDS = 0.05


class StopSignals:
    """Handles SIGTERM and SIGINT in a with block.

    The first signal sets `received`. A second one, at least half a second later, ends the process
    at once with its `exit_status`, whatever the main thread is doing. Signals that were ignored
    when the process started stay ignored. Outside of the main thread the block does nothing.

    Args:
      on_first: called with the first signal at once, in another thread. If None, the first signal
        raises KeyboardInterrupt in the main thread, and the process ends with the signal's status
        even if the main thread does not respond.

    Attributes:
      received: the first signal, or None.
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
        # Python runs handlers only between its own instructions, and a call of the training loop is
        # one. But the C handler writes each signal to this socket, which a thread reads at once.
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        former = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self._former = {n: handler for n, handler in former.items() if handler != signal.SIG_IGN}
        for number in self._former:
            signal.signal(number, self._handle)
        self._former_hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores the former handlers."""
        if self._watcher is None:
            return
        sys.unraisablehook = self._former_hook
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

    def _unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        # Python discards exceptions in finalizers and callbacks of weak references; each import
        # ends with such a callback.
        if self._raised and unraisable.exc_type is KeyboardInterrupt:
            self._writer.send(bytes([_DISCARDED]))
        else:
            self._former_hook(unraisable)

    def _watch(self) -> None:
        began = None
        sent_again = 0
        while True:
            try:
                received = self._reader.recv(1)
            except socket.timeout:
                _end(self.received)
            if not received:
                return
            number = received[0]
            if number == _DISCARDED:
                time.sleep(_HOOK_SECONDS)
                if signal.getsignal(self.received) == self._handle:
                    sent_again += 1
                    self._raised = False
                    os.kill(os.getpid(), self.received)
                continue
            if number == self.received and sent_again:
                sent_again -= 1
                continue
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
                _end(number)


@contextlib.contextmanager
def kept_handlers() -> Iterator[None]:
    """Restores signal handlers that native code replaces in the with block.

    TensorFlow does so when a process joins a cluster: its handler of SIGTERM only notifies
    tf.distribute.experimental.PreemptionCheckpointHandler, and the signal has no other effect.
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
