# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs functions in worker processes: ordered results, progress, and an end at the first error.

Each process has a connection of its own and shares no lock or queue with others: whenever and
wherever one dies, its connection ends, and nobody waits for it. A thread of the parent serves each.
"""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.tensorflow_import import prepare_tensorflow

#: Seconds between two reports of a process's progress.
_REPORT_SECONDS = 0.5
#: How long a process may take to end, which removes its temporary files.
_END_SECONDS = 10.0

Advance = Callable[[int], None]


class _Worker:
    """A worker process as seen by its parent."""

    def __init__(self, make_context: Callable[..., Any], args: tuple) -> None:
        # TensorFlow does not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, make_context, args), daemon=True)
        self.process.start()
        theirs.close()  # Now only the process has it, so it ends with the process.

    def run(self, function: Callable, item: Any, on_progress: Advance) -> Any:
        """Returns the result of a task, or raises its exception."""
        try:
            self._connection.send((function, item))
            while True:
                amount, over, result = self._connection.recv()
                on_progress(amount)
                if isinstance(result, Exception):
                    raise result
                if over:
                    return result
        except (EOFError, OSError):
            self.process.join(_END_SECONDS)
            if self.process.exitcode == 1:
                raise AlbertError(
                    "A worker process ended with the error above. Each one imports the main "
                    'script, whose work must therefore stand below `if __name__ == "__main__":`.'
                ) from None
            raise StoppedError(
                "A worker process was killed, perhaps for lack of memory; to continue, run the "
                "same command again with fewer workers."
            ) from None


def _work(connection: Connection, make_context: Callable[..., Any], args: tuple) -> None:
    """Does the tasks that the parent sends, in a worker process."""
    # Ctrl-C reaches the whole process group, but only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # So that `with` and `finally` blocks remove temporary files.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare_tensorflow()
    amount_done, due = 0, 0.0

    def advance(amount: int) -> None:
        nonlocal amount_done, due
        amount_done += amount
        if time.monotonic() >= due:
            connection.send((amount_done, False, None))
            amount_done, due = 0, time.monotonic() + _REPORT_SECONDS

    context = make_context(*args)
    while True:
        function, item = connection.recv()
        try:
            result = function(context, item, advance)
        except Exception as error:
            if not isinstance(error, AlbertError):
                traceback.print_exc()  # The parent gets the error without it.
            result = error
        connection.send((amount_done, True, result))
        amount_done = 0


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


class Workers:
    """Runs functions of (context, item, advance) in processes; a context manager.

    With one worker everything runs in this process. Processes are spawned, never forked:
    TensorFlow does not survive a fork.
    """

    def __init__(self, num_workers: int, make_context: Callable[..., Any], args: tuple) -> None:
        """Prepares the workers.

        Args:
          num_workers: number of processes.
          make_context: called once in each process; returns the functions' first argument.
          args: the arguments of `make_context`, which must be picklable.
        """
        self._num_workers = num_workers
        self._make_context, self._args = make_context, args
        self._context = make_context(*args) if num_workers == 1 else None
        self._workers: list[_Worker] = []

    def map(
        self,
        function: Callable[[Any, Any, Advance], Any],
        items: Iterable[Any],
        on_progress: Advance,
    ) -> Iterator[Any]:
        """Yields function(context, item, advance) for each item, in order.

        Args:
          function: importable; calls `advance` with the amount of work it has done.
          items: consumed only slightly ahead of the results.
          on_progress: called from time to time with the amount done since the last call.

        Raises:
          AlbertError: a function raised it, or a process ended.
        """
        if self._num_workers == 1:
            for item in items:
                yield function(self._context, item, on_progress)
            return
        while len(self._workers) < self._num_workers:
            self._workers.append(_Worker(self._make_context, self._args))
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            idle.put(worker)
        amounts: queue.SimpleQueue[int] = queue.SimpleQueue()

        def run(item: Any) -> Any:
            worker = idle.get()
            try:
                return worker.run(function, item, amounts.put)
            finally:
                idle.put(worker)

        items = iter(items)
        running: collections.deque[concurrent.futures.Future] = collections.deque()
        threads = concurrent.futures.ThreadPoolExecutor(self._num_workers)
        try:
            while True:
                for item in itertools.islice(items, 2 * self._num_workers - len(running)):
                    running.append(threads.submit(run, item))
                if not running:
                    return
                concurrent.futures.wait([running[0]], _REPORT_SECONDS)
                while not amounts.empty():
                    on_progress(amounts.get())
                for future in running:
                    if future.done():
                        future.result()  # Raises its error, even if others come before it.
                while running and running[0].done():
                    yield running.popleft().result()
        except BaseException:
            self.end()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def end(self) -> None:
        """Stops the processes; unfinished tasks are cancelled."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(_END_SECONDS)
            worker.process.kill()
            worker.process.join()
        self._workers.clear()

    def __enter__(self) -> Workers:
        """Returns the workers, whose processes start with the first `map`."""
        return self

    def __exit__(self, *exception: object) -> None:
        """See `end`."""
        self.end()
