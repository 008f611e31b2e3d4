# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs functions in worker processes: ordered results, progress, and an end at the first error.

Each process has a connection of its own and shares no lock or queue with others: whenever and
wherever one dies, its connection ends, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.tensorflow_import import prepare_tensorflow

#: How long a process may take to end, which removes its temporary files.
_END_SECONDS = 10.0

Advance = Callable[[int], None]


def _work(connection: Connection) -> None:
    """Does the tasks that the parent sends, in a worker process."""
    # Ctrl-C reaches the whole process group, but only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # So that `with` and `finally` blocks remove temporary files.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare_tensorflow()
    make_context, args = connection.recv()
    context = make_context(*args)
    while True:
        function, item = connection.recv()
        try:
            result = function(context, item, lambda amount: connection.send((amount, None)))
        except Exception as error:
            if not isinstance(error, AlbertError):
                traceback.print_exc()  # The parent gets the error without it.
            result = error
        connection.send((None, result))


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


class Workers(contextlib.AbstractContextManager):
    """Runs functions of (context, item, advance) in processes; a context manager.

    With one worker everything runs in this process. Processes start with the first `map`; they are
    spawned, never forked: TensorFlow does not survive a fork.

    Args:
      num_workers: number of processes.
      make_context: called once in each process; returns the functions' first argument.
      args: the arguments of `make_context`, which must be picklable.
    """

    def __init__(self, num_workers: int, make_context: Callable[..., Any], args: tuple) -> None:
        self._num_workers = num_workers
        self._make_context, self._args = make_context, args
        self._context = make_context(*args) if num_workers == 1 else None
        self._processes = {}

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        for _ in range(self._num_workers):
            ours, theirs = spawn.Pipe()
            self._processes[ours] = spawn.Process(target=_work, args=(theirs,), daemon=True)
            self._processes[ours].start()
            theirs.close()  # Now only the process has it, so it ends with the process.
        for ours in self._processes:
            with self._alive(ours):
                ours.send((self._make_context, self._args))

    @contextlib.contextmanager
    def _alive(self, connection: Connection) -> Iterator[None]:
        """Turns the end of a worker's connection into a StoppedError."""
        try:
            yield
        except (EOFError, OSError):
            process = self._processes[connection]
            process.join(_END_SECONDS)
            raise StoppedError(
                f"A worker process ended (exit code {process.exitcode}) with the error above, or "
                "was killed, perhaps for lack of memory: run the same command again with fewer "
                "workers."
            ) from None

    def map(
        self,
        function: Callable[[Any, Any, Advance], Any],
        items: Iterable[Any],
        on_progress: Advance,
    ) -> Iterator[Any]:
        """Yields function(context, item, advance) for each item, in order.

        `function` must be importable; it calls `advance`, and so `on_progress`, with the amount of
        work it has done. `items` are consumed only slightly ahead of the results.

        Raises:
          AlbertError: a function raised it, or a process ended.
        """
        if self._num_workers == 1:
            for item in items:
                yield function(self._context, item, on_progress)
            return
        if not self._processes:
            self._start()
        tasks = enumerate(items)
        idle, busy = list(self._processes), {}
        results = {}
        count = 0  # Of the results that were yielded.
        while True:
            while idle and len(busy) + len(results) < 2 * self._num_workers:
                if (task := next(tasks, None)) is None:
                    break
                # A worker without a task is reading, so neither side waits for the other to read.
                with self._alive(idle[-1]):
                    idle[-1].send((function, task[1]))
                busy[idle.pop()] = task[0]
            if not busy and not results:
                return
            for connection in wait(busy, 0 if count in results else None):
                with self._alive(connection):
                    amount, result = connection.recv()
                if amount is not None:
                    on_progress(amount)
                elif isinstance(result, Exception):
                    raise result
                else:
                    results[busy.pop(connection)] = result
                    idle.append(connection)
            if count in results:
                yield results.pop(count)
                count += 1

    def __exit__(self, *exception: object) -> None:
        """Ends the processes, whatever they do."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join(_END_SECONDS)
            process.kill()
            process.join()
        self._processes.clear()
