# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The processes that train together: TF_CONFIG, joining the cluster, and acting alike."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import tensorflow as tf

from albert_tf.errors import AlbertError, first_line
from albert_tf.io.locks import lock_folder
from albert_tf.io.log import log
from albert_tf.io.signals import native_waiting

Strategy = tf.distribute.Strategy
#: Parts of TensorFlow's errors when another process of a collective step is gone.
_LOST = ("Collective ops is aborted", "remote target /job:")


@functools.lru_cache(maxsize=1)
def join_cluster() -> Strategy:
    """Joins the cluster of TF_CONFIG, once a process, and returns its strategy.

    TensorFlow waits up to an hour for the other processes, and takes SIGTERM for itself meanwhile.
    It can join only before its first operation; runners only read files before it.

    Raises:
      AlbertError: TF_CONFIG names no cluster, not all of its processes have been started, or
        TensorFlow has run an operation before.
    """
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        workers = sum(map(len, resolver.cluster_spec().as_dict().values()))
        if workers < 2:
            raise ValueError(f"it has {workers}")
        log.info(f"Waiting until all {workers} workers of TF_CONFIG are there.")
        # TensorFlow keeps Python's handlers from running, and replaces that of SIGTERM.
        with native_waiting():
            return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except (ValueError, TypeError, LookupError) as error:
        raise AlbertError(
            "`strategy`=multi_worker needs the environment variable TF_CONFIG with a JSON object "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}: '
            "at least two workers, an address for each, and the index of this one, from 0 "
            f"({first_line(error)})."
        ) from error
    except RuntimeError as error:
        raise AlbertError(
            "Cannot join the cluster after TensorFlow has run its first operation; call "
            "albert_tf.training.cluster.join_cluster() before anything else."
        ) from error
    except tf.errors.OpError as error:
        raise AlbertError(
            f"Cannot join the cluster of TF_CONFIG: {first_line(error)}. Have all workers been "
            "started, and does no other process use this worker's address?"
        ) from error


def is_chief(strategy: Strategy | None) -> bool:
    """Returns whether this process writes files: the first worker, or the only process."""
    return strategy is None or strategy.extended.should_checkpoint


def cluster_max(strategy: Strategy | None, value: int) -> int:
    """Returns the highest value among the processes of a run, which all call this.

    They must act alike, but see different things: clocks, signals, the chief's files.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return int(value)
    return int(tf.reduce_max(_gathering(strategy)(tf.constant([value], tf.int64))))


def barrier(strategy: Strategy) -> None:
    """Waits for all processes of a run, such as for what the chief writes."""
    cluster_max(strategy, 0)


def check_same_everywhere(strategy: Strategy, value: int, what: str) -> None:
    """Raises AlbertError in all processes if `value`, which is `what`, differs between them."""
    highest, lowest = cluster_max(strategy, value), -cluster_max(strategy, -value)
    if highest != lowest:
        raise AlbertError(
            f"To one worker, {what} is {highest}, to another one {lowest}, to this one {value}; "
            "all of them must see the same files."
        )


@functools.lru_cache(maxsize=1)
def _gathering(strategy: Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Gathers the [1] of each process to [replicas]; cached, as tracing at every call is slow."""

    def gather(value: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(tf.identity, args=(value,)), axis=0)

    return tf.function(gather, autograph=False)


@contextlib.contextmanager
def lost_workers() -> Iterator[None]:
    """Turns TensorFlow's errors about a lost worker into an AlbertError that says what to do."""
    try:
        yield
    except tf.errors.OpError as error:
        lines = str(error).splitlines()
        reason = next((line for line in lines if any(part in line for part in _LOST)), None)
        if reason is None:
            raise
        raise AlbertError(
            f"Another worker has ended or cannot be reached ({reason.strip().rstrip('.')}); start "
            "all workers again to resume from the newest checkpoint."
        ) from error


@contextlib.contextmanager
def output_lock(strategy: str, *folders: str) -> Iterator[None]:
    """Locks output directories while a run trains there; joins its cluster first, if any.

    All processes of a cluster call this. Only the chief takes the locks; if it fails, all of them
    raise, so that none waits for others. `strategy` is the name of one. For an evaluation there are
    no folders, and nothing is locked.

    Raises:
      AlbertError: another run trains in one of them.
    """
    cluster = join_cluster() if strategy == "multi_worker" else None
    if not folders:
        yield
        return
    error = None
    with contextlib.ExitStack() as locks:
        if is_chief(cluster):
            try:
                for folder in folders:
                    locks.enter_context(lock_folder(folder))
            except AlbertError as chief_error:
                error = chief_error
        with lost_workers():
            failed = cluster_max(cluster, error is not None)
        if failed:
            raise error or AlbertError(
                f"The chief of this cluster could not lock {folders[0]}; its error says why."
            )
        yield
