# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs functions in worker processes: ordered results, progress, and an end at the first error.

Each process has a connection of its own and shares no lock or queue with others: whenever and
wherever one dies, its connection ends, and nobody waits for it.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.tensorflow_import import prepare_tensorflow

#: Tasks that a process has: the one that it works on, and the next one.
_TASKS = 2
#: Seconds between two reports of a process's progress.
_REPORT_SECONDS = 0.5
#: How long all processes together may take to end; a task ends when it calls `advance`.
_END_SECONDS = 10.0

Advance = Callable[[int], None]


class _Worker:
    """A worker process as seen by its parent.

    Attributes:
      process: the process.
      connection: leads to it.
      tasks: numbers of the tasks that were sent and are not done.
    """

    def __init__(self, make_context: Callable[..., Any], args: tuple) -> None:
        # TensorFlow does not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, make_context, args), daemon=True)
        self.process.start()
        theirs.close()  # Now only the process has it, so it ends with the process.
        self.tasks: collections.deque[int] = collections.deque()

    def send(self, task: tuple[Callable, Any]) -> None:
        """Sends a task, (function, item)."""
        try:
            self.connection.send(task)
        except OSError as error:
            raise self._lost() from error

    def receive(self) -> tuple[int, bool, Any]:
        """Returns the next message of the process; see `_Reports`."""
        try:
            return self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error

    def _lost(self) -> AlbertError:
        self.process.join(_END_SECONDS)
        if self.process.exitcode == 1:
            return AlbertError(
                "A worker process ended with the error above. Each one imports the main script, "
                'whose work must therefore stand below `if __name__ == "__main__":`.'
            )
        return StoppedError(
            "A worker process was killed, perhaps for lack of memory; to continue, run the same "
            "command again with fewer workers."
        )

    def end(self, deadline: float) -> None:
        """Waits for the process, which was told to stop, and kills it after the deadline."""
        with contextlib.suppress(OSError):
            # It may be about to send a result. Messages that were partly read do not matter here.
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                if not os.read(self.connection.fileno(), 1 << 16):
                    break
        self.process.join(max(0.0, deadline - time.monotonic()))
        self.process.kill()
        self.process.join()
        self.connection.close()


class _Reports:
    """The messages of a worker process: (amount of work, whether a task is over, its result).

    The result of a task that has failed is its exception.

    Attributes:
      stop: set once the parent wants no more results.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._amount, self._due = 0, 0.0
        self.stop = threading.Event()

    def advance(self, amount: int) -> None:
        """Adds to the progress; ends the task if another one has failed."""
        if self.stop.is_set():
            raise AlbertError("Stopped.")
        self._amount += amount
        if time.monotonic() >= self._due:
            self._send(False)

    def finish(self, result: Any) -> None:
        """Reports the end of a task."""
        if not self.stop.is_set():
            self._send(True, result)

    def _send(self, over: bool, result: Any = None) -> None:
        self._connection.send((self._amount, over, result))
        self._amount = 0
        self._due = time.monotonic() + _REPORT_SECONDS


def _work(connection: Connection, make_context: Callable[..., Any], args: tuple) -> None:
    """Does the tasks that the parent sends, in a worker process."""
    # Ctrl-C reaches the whole process group, but only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_tensorflow()
    reports = _Reports(connection)
    tasks: queue.SimpleQueue = queue.SimpleQueue()
    # A thread receives them, so that the parent never waits for the end of one to send the next.
    threading.Thread(target=_receive, args=(connection, tasks, reports.stop), daemon=True).start()
    context = make_context(*args)
    while (task := tasks.get()) is not None and not reports.stop.is_set():
        function, item = task
        try:
            result = function(context, item, reports.advance)
        except Exception as error:
            if not isinstance(error, AlbertError):
                traceback.print_exc()  # The parent gets the error without it.
            result = error
        reports.finish(result)


def _receive(connection: Connection, tasks: queue.SimpleQueue, stop: threading.Event) -> None:
    try:
        while (task := connection.recv()) is not None:
            tasks.put(task)
    except Exception as error:
        # The end of the connection: the parent was killed, or interrupted while it was sending.
        if not isinstance(error, (EOFError, OSError)):
            traceback.print_exc()
        os._exit(1)
    stop.set()
    tasks.put(None)


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
        items = iter(items)
        results: dict[int, Any] = {}
        sent = yielded = 0
        while True:
            ahead = _TASKS * self._num_workers - (sent - yielded)
            for item in itertools.islice(items, ahead):
                worker = min(self._workers, key=lambda worker: len(worker.tasks))
                worker.send((function, item))
                worker.tasks.append(sent)
                sent += 1
            if yielded == sent:
                return
            ready = wait([worker.connection for worker in self._workers])
            for worker in self._workers:
                if worker.connection in ready:
                    amount, over, result = worker.receive()
                    on_progress(amount)
                    if isinstance(result, Exception):
                        raise result
                    if over:
                        results[worker.tasks.popleft()] = result
            while yielded in results:
                yield results.pop(yielded)
                yielded += 1

    def __enter__(self) -> Workers:
        """Returns the workers, whose processes start with the first `map`."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stops the workers; unfinished tasks are cancelled."""
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.connection.send(None)
        deadline = time.monotonic() + _END_SECONDS
        for worker in self._workers:
            worker.end(deadline)
        self._workers.clear()
