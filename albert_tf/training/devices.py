# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Describes the devices of a run, and explains why a GPU of this machine is not used."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import tensorflow as tf

#: Files that NVIDIA's driver creates on Linux.
_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidia0")


def announce_devices(strategy: tf.distribute.Strategy) -> None:
    """Prints, once a process, the devices of a strategy, and why a GPU is not used."""
    print_once(f"Devices: {describe_devices(strategy)}.")
    reason = missing_gpu()
    if reason and not isinstance(strategy, tf.distribute.TPUStrategy):
        print_once(reason)


@functools.cache
def print_once(text: str) -> None:
    """Prints a line, once a process."""
    print(text)


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
    devices = devices_of(strategy)
    gpus = tf.config.list_physical_devices("GPU")
    used = [gpus[d.device_index % len(gpus)] for d in devices if d.device_type == "GPU"]
    return [tf.config.experimental.get_device_details(gpu) for gpu in used]


def missing_gpu() -> str:
    """Explains why TensorFlow sees no GPU despite NVIDIA's driver, and what to do; else ""."""
    if tf.config.list_physical_devices("GPU") or not any(map(os.path.exists, _DRIVER)):
        return ""
    problem = "This machine has an NVIDIA driver, but TensorFlow sees no GPU"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    install = f'pip install "tensorflow[and-cuda]=={tf.__version__}"'
    if hidden.strip() == "" or hidden.startswith("-"):
        return f"{problem}: CUDA_VISIBLE_DEVICES={hidden!r} hides it."
    if not tf.test.is_built_with_cuda():
        return f"{problem}: this TensorFlow is built without CUDA. Install another one: {install}"
    if not _loads("libcuda.so.1"):
        return (
            f"{problem}: the driver's library libcuda.so.1 cannot be loaded. A container needs to "
            "be started with its GPUs, as with docker run --gpus all."
        )
    built = tf.sysconfig.get_build_info()
    names = {
        "libcudart": str(built.get("cuda_version", "")).partition(".")[0],
        "libcudnn": built.get("cudnn_version", ""),
    }
    lacking = [f"{n}.so.{v}" for n, v in names.items() if v and not _loads(f"{n}.so.{v}")]
    if lacking:
        return f"{problem}: it cannot load {' and '.join(lacking)}. Install them: {install}"
    return (
        f"{problem}. See whether nvidia-smi shows one; with TF_CPP_MIN_LOG_LEVEL=0 TensorFlow says "
        f"what it lacks, and {install} installs CUDA's libraries."
    )


def _loads(library: str) -> bool:
    """Returns whether a library can be loaded, or TensorFlow has loaded it from elsewhere."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
