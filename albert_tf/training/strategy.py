# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The tf.distribute strategy of a run, its devices, and why a GPU of this machine is not used."""

from __future__ import annotations

import functools
import os
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.log import log
from albert_tf.io.signals import native_waiting
from albert_tf.training.cluster import cluster_strategy
from albert_tf.training.specs import BFLOAT16, FLOAT16, FLOAT32, RunConfig
from albert_tf.training.tpu import tpu_name, tpu_strategy

#: Files that NVIDIA's driver creates on Linux.
_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidia0")


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
        return cluster_strategy()
    with native_waiting():
        return tpu_strategy(tpu_name(config))


def mirrored_devices() -> list[str]:
    """Returns the names of all GPUs, or of all logical CPUs if there is no GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return [device.name for device in gpus or tf.config.list_logical_devices("CPU")]


def _mirrored_strategy() -> tf.distribute.Strategy:
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


@functools.cache
def print_once(text: str) -> None:
    """Prints a line, once a process."""
    log.info(text)


def announce_devices(strategy: tf.distribute.Strategy) -> None:
    """Prints, once a process, the devices of a strategy, and why a GPU is not used."""
    print_once(f"Devices: {describe_devices(strategy)}.")
    reason = missing_gpu()
    if reason and not isinstance(strategy, tf.distribute.TPUStrategy):
        print_once(reason)


def devices_of(strategy: tf.distribute.Strategy) -> list[tf.DeviceSpec]:
    """Returns the devices that a strategy uses in this process."""
    return [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]


def describe_devices(strategy: tf.distribute.Strategy) -> str:
    """Describes the devices of a strategy, as in "2 GPUs (NVIDIA A100-SXM4-40GB)"."""
    devices = devices_of(strategy)
    kind, count = devices[0].device_type, len(devices)
    text = f"{count} {kind}{'s' if count > 1 else ''}"
    if kind == "GPU":
        details = gpu_details(strategy)
        names = dict.fromkeys(detail.get("device_name", "unknown") for detail in details)
        text += f" ({', '.join(names)})"
        total = len(tf.config.list_logical_devices("GPU"))
        if count < total:
            text += f" of {total}, all of which the mirrored strategy uses"
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        text += f" of the {strategy.num_replicas_in_sync} in the cluster"
    return text


def gpu_details(strategy: tf.distribute.Strategy) -> list[dict[str, Any]]:
    """Returns what TensorFlow knows of the GPUs that a strategy uses in this process.

    Of NVIDIA's, `device_name` and `compute_capability`, a pair of ints; of others maybe nothing.
    """
    gpus = tf.config.list_physical_devices("GPU")
    used = [d.device_index % len(gpus) for d in devices_of(strategy) if d.device_type == "GPU"]
    return [tf.config.experimental.get_device_details(gpus[index]) for index in used]


def missing_gpu() -> str:
    """Explains why TensorFlow sees no GPU despite NVIDIA's driver, and what to do; else ""."""
    if tf.config.list_physical_devices("GPU") or not any(map(os.path.exists, _DRIVER)):
        return ""
    problem = "This machine has an NVIDIA driver, but TensorFlow sees no GPU"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    if hidden.strip() == "" or hidden.startswith("-"):
        return f"{problem}: CUDA_VISIBLE_DEVICES={hidden!r} hides it."
    return (
        f"{problem}. Install CUDA's libraries with pip install "
        f'"tensorflow[and-cuda]=={tf.__version__}", and start containers with their GPUs, as with '
        "docker run --gpus all; with TF_CPP_MIN_LOG_LEVEL=0 TensorFlow says what it lacks."
    )
