# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The tf.distribute strategy of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf.errors import AlbertError, first_line
from albert_tf.io.signals import native_waiting
from albert_tf.training.cluster import check_cluster, wait_for_others
from albert_tf.training.devices import gpu_details, missing_gpu
from albert_tf.training.specs import BFLOAT16, FLOAT16, FLOAT32, RunConfig
from albert_tf.training.tpu import tpu_name, tpu_strategy


def make_strategy(config: RunConfig) -> tf.distribute.Strategy:
    """Returns the strategy that `config.strategy` names.

    Raises:
      AlbertError: the devices it needs are missing.
    """
    if config.strategy == "default":
        device = "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
        return tf.distribute.OneDeviceStrategy(device)
    if config.strategy == "mirrored":
        return _mirrored_strategy()
    if config.strategy == "multi_worker":
        return _multi_worker_strategy()
    with native_waiting():
        return tpu_strategy(tpu_name(config), config.tpu_zone, config.gcp_project)


def mirrored_devices() -> list[str]:
    """Returns the names of all GPUs, or of all logical CPUs if there is no GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return [device.name for device in gpus or tf.config.list_logical_devices("CPU")]


def _mirrored_strategy() -> tf.distribute.Strategy:
    """Returns a strategy over the `mirrored_devices`.

    Raises:
      AlbertError: there is only one device.
    """
    gpus, names = tf.config.list_logical_devices("GPU"), mirrored_devices()
    if len(names) < 2:
        seen = "one GPU" if gpus else "no GPU"
        raise AlbertError(
            f"`strategy`=mirrored needs at least two GPUs, and TensorFlow sees {seen}; "
            f"`strategy`=default uses one device. {missing_gpu()}".strip()
        )
    if gpus:
        return tf.distribute.MirroredStrategy(names)
    # Collectives on CPUs interfere with each other if a process creates two strategies.
    return tf.distribute.MirroredStrategy(
        names, cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def join_cluster(strategy: str) -> tf.distribute.Strategy | None:
    """Joins the cluster, if the strategy of this name has one.

    TensorFlow can only do this before its first operation, so scripts begin with it.

    Returns:
      The strategy of the cluster; None if there is no cluster.

    Raises:
      AlbertError: TF_CONFIG names no cluster, or not all of its processes have been started.
    """
    return _multi_worker_strategy() if strategy == "multi_worker" else None


def fast_precisions(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Returns the precisions that are fast on the devices, the best first and float32 last."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return BFLOAT16, FLOAT32
    if details := gpu_details(strategy):
        known = [precisions_of_gpu(detail.get("compute_capability")) for detail in details]
        return min(known, key=len)  # Those of the oldest one.
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            features = f.read()
    except OSError:  # Not Linux.
        return (FLOAT32,)
    units = ("amx_bf16", "avx512_bf16")
    return (BFLOAT16, FLOAT32) if any(unit in features for unit in units) else (FLOAT32,)


def precisions_of_gpu(compute_capability: tuple[int, int] | None) -> tuple[str, ...]:
    """Returns the precisions that are fast on an NVIDIA GPU, the best first and float32 last.

    Volta and Turing (7.x) have matrix units for float16 alone. From Ampere (8.0) on they have them
    for both types, and bfloat16 needs no loss scale.

    Args:
      compute_capability: major and minor version; None if unknown, as for GPUs of other makers.
    """
    if compute_capability is None or compute_capability < (7, 0):
        return (FLOAT32,)
    return (FLOAT16, FLOAT32) if compute_capability < (8, 0) else (BFLOAT16, FLOAT16, FLOAT32)


def _check_unused() -> None:
    """Raises RuntimeError if TensorFlow has run an operation; it tells when its options change."""
    threads = tf.config.threading.get_inter_op_parallelism_threads()
    tf.config.threading.set_inter_op_parallelism_threads(threads + 1)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


@functools.lru_cache(maxsize=1)
def _multi_worker_strategy() -> tf.distribute.Strategy:
    """Joins the cluster, once a process."""
    check_cluster()
    try:
        _check_unused()
        wait_for_others()
        # TensorFlow keeps Python's handlers from running, and replaces that of SIGTERM.
        with native_waiting():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise AlbertError(
            "Cannot join the cluster after TensorFlow has run its first operation; call "
            'albert_tf.training.strategy.join_cluster("multi_worker") before anything else.'
        ) from error
    except tf.errors.OpError as error:
        raise AlbertError(
            f"Cannot join the cluster of TF_CONFIG: {first_line(error)}. Does another process use "
            "this worker's address?"
        ) from error


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes files: the first worker, or the only process."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or resolver is None:
        return True
    return resolver.task_type in (None, "chief") or (
        resolver.task_type == "worker"
        and resolver.task_id == 0
        and "chief" not in resolver.cluster_spec().jobs
    )


def highest(strategy: tf.distribute.Strategy, value: int = 0) -> int:
    """Returns the highest value among the processes of a run; waits for all of them.

    Needed where all must act alike, but see different things: clocks, signals, the chief's files.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return value
    return int(tf.reduce_max(_gathering(strategy)(tf.constant([value], tf.int64))))


@functools.lru_cache(maxsize=1)
def _gathering(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Gathers the [1] of each process to [replicas]; cached, as tracing at every call is slow."""

    def gather(value: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(tf.identity, args=(value,)), axis=0)

    return tf.function(gather, autograph=False)
