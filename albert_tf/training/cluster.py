# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The processes that train together: TF_CONFIG, waiting for each other, and acting alike."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from albert_tf.errors import AlbertError, first_line
from albert_tf.io.locks import lock_folder
from albert_tf.io.log import log
from albert_tf.io.signals import native_waiting

Strategy = tf.distribute.Strategy
#: How long a process waits for the others of its cluster, and how often it says so.
_LIMIT_SECONDS = 600.0
_FIRST_NOTE_SECONDS = 3.0
_NOTE_SECONDS = 30.0
#: How often it looks for them, and how long for an answer.
_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 2.0
#: Parts of TensorFlow's errors when another process of a collective step is gone.
_LOST = ("Collective ops is aborted", "remote target /job:")


def _addresses() -> tuple[str, list[str]]:
    """Returns the address of this process in TF_CONFIG, "host:port", and those of the others."""
    try:
        config = json.loads(os.environ.get("TF_CONFIG", ""))
        machines = {k: v for k, v in config["cluster"].items() if k in ("chief", "worker")}
        addresses = [address for of_kind in machines.values() for address in of_kind]
        for address in addresses:
            _split(address)
        index = int(config["task"]["index"])
        own = machines[config["task"]["type"]][index]
        if index < 0 or len(addresses) != len({*addresses}) or len(addresses) < 2:
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError):
        raise AlbertError(
            "`strategy`=multi_worker needs the environment variable TF_CONFIG with a JSON object "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}: '
            "at least two workers, an address for each, and the index of this one, from 0."
        ) from None
    return own, [address for address in addresses if address != own]


def wait_for_others() -> None:
    """Waits until all processes of the cluster have been started, and says for whom it waits.

    TensorFlow would wait very long, without a word and deaf to signals: it keeps Python from
    running meanwhile. So each process first opens its port, where TensorFlow will listen later,
    and looks for those of the others. Raises AlbertError if TF_CONFIG is wrong, this process's port
    is in use, or the others are not there within ten minutes.
    """
    own, others = _addresses()
    began, since = time.monotonic(), time.strftime("%H:%M:%S")
    next_note = began + _FIRST_NOTE_SECONDS
    with _listen(own) as server:
        # All at the same time: one that was there before may have ended since.
        while missing := [address for address in others if not _answers(address)]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    server.accept()[0].close()
            now, names = time.monotonic(), ", ".join(missing)
            if now - began > _LIMIT_SECONDS:
                raise AlbertError(
                    f"No worker has answered at {names} for {_LIMIT_SECONDS / 60:.0f} minutes; "
                    "start all workers of TF_CONFIG, and check that the machines reach each other."
                )
            if now >= next_note:
                next_note = now + _NOTE_SECONDS
                log.warning(f"Waiting for {names} since {since}.")
            time.sleep(_POLL_SECONDS)


def _split(address: str) -> tuple[str, int]:
    """Splits "host:port"; raises ValueError, or AttributeError for what is no string."""
    host, _, port = address.rpartition(":")
    if not host or not 0 < int(port) < 1 << 16:
        raise ValueError
    return host.strip("[]"), int(port)


def _listen(address: str) -> socket.socket:
    """Opens the port of an address on all interfaces, as TensorFlow does."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", _split(address)[1]), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise AlbertError(
            f"The port of this worker's address in TF_CONFIG, {address}, cannot be opened "
            f"({error.strerror}); does another process use it?"
        ) from error
    server.setblocking(False)
    return server


def _answers(address: str) -> bool:
    try:
        with socket.create_connection(_split(address), _ANSWER_SECONDS) as connection:
            # On one machine, a port may by chance be connected to itself.
            return connection.getsockname() != connection.getpeername()
    except OSError:
        return False


@functools.lru_cache(maxsize=1)
def join_cluster() -> Strategy:
    """Joins the cluster of TF_CONFIG, once a process, and returns its strategy.

    TensorFlow can only do this before its first operation; runners only read files before it.

    Raises:
      AlbertError: TF_CONFIG names no cluster, not all of its processes have been started, or
        TensorFlow has run an operation before.
    """
    _addresses()  # Its errors come first.
    try:
        # It raises RuntimeError if TensorFlow has run an operation, which it tells when its options
        # change.
        threads = tf.config.threading.get_inter_op_parallelism_threads()
        for number in (threads + 1, threads):
            tf.config.threading.set_inter_op_parallelism_threads(number)
        wait_for_others()
        # TensorFlow keeps Python's handlers from running, and replaces that of SIGTERM.
        with native_waiting():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise AlbertError(
            "Cannot join the cluster after TensorFlow has run its first operation; call "
            "albert_tf.training.cluster.join_cluster() before anything else."
        ) from error
    except tf.errors.OpError as error:
        raise AlbertError(
            f"Cannot join the cluster of TF_CONFIG: {first_line(error)}. Does another process use "
            "this worker's address?"
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

    def gather(value) -> tf.Tensor:
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
