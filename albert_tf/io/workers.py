# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs functions in worker processes: ordered results, progress, and an end at the first error."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.tensorflow_import import prepare_tensorflow

#: Seconds between two checks of the workers' progress.
_POLL_SECONDS = 0.5

Advance = Callable[[int], None]

_worker: _Worker


class _Worker:
    """The state of a worker process."""

    def __init__(self, make_context: Callable[..., Any], args: tuple, done: Any, stop: Any) -> None:
        self.context = make_context(*args)
        self._done = done
        self._stop = stop

    def advance(self, amount: int) -> None:
        """Adds to the progress; ends the task if another one has failed."""
        if self._stop.is_set():
            raise AlbertError("Stopped.")
        with self._done.get_lock():
            self._done.value += amount


def _start(*args: Any) -> None:
    global _worker
    # Ctrl-C reaches the whole process group, but only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_tensorflow()
    # If the parent is killed, its workers would wait for work forever.
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _worker = _Worker(*args)


def _exit_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(function: Callable[[Any, Any, Advance], Any], item: Any) -> Any:
    return function(_worker.context, item, _worker.advance)


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
        self._executor = None
        self._context = None
        if num_workers == 1:
            self._context = make_context(*args)
            return
        spawn = multiprocessing.get_context("spawn")
        self._done = spawn.Value("q", 0)
        self._stop = spawn.Event()
        self._executor = concurrent.futures.ProcessPoolExecutor(
            num_workers, spawn, _start, (make_context, args, self._done, self._stop)
        )

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
          AlbertError: a function raised it, or a process was killed.
        """
        if self._executor is None:
            for item in items:
                yield function(self._context, item, on_progress)
            return
        try:
            yield from self._results(function, iter(items), on_progress)
        except BrokenProcessPool as error:
            raise StoppedError(
                "A worker process was killed, perhaps for lack of memory; to continue, run the "
                "same command again with fewer workers."
            ) from error

    def _results(
        self, function: Callable, items: Iterator[Any], on_progress: Advance
    ) -> Iterator[Any]:
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        while True:
            for item in itertools.islice(items, 2 * self._num_workers - len(waiting)):
                waiting.append(self._executor.submit(_call, function, item))
            if not waiting:
                return
            concurrent.futures.wait([waiting[0]], _POLL_SECONDS)
            with self._done.get_lock():
                amount, self._done.value = self._done.value, 0
            if amount:
                on_progress(amount)
            for future in waiting:
                if future.done():
                    future.result()  # Raises the error of a worker.
            if waiting[0].done():
                yield waiting.popleft().result()

    def __enter__(self) -> Workers:
        """Returns the workers, whose processes start with the first task."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stops the workers; unfinished tasks are cancelled."""
        if self._executor is not None:
            self._stop.set()
            self._executor.shutdown(cancel_futures=True)
