# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The devices of a run: their strategy, precisions, and whether XLA compiles for them.

docs/clusters.md has the reasons, docs/not_run.md the requirements of TPUs.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError, first_line
from albert_tf.io.log import log
from albert_tf.io.signals import native_waiting
from albert_tf.modeling.kernels.graph_mode import GraphMode
from albert_tf.training.cluster import Strategy, join_cluster
from albert_tf.training.specs import AUTO, BFLOAT16, FLOAT16, FLOAT32, RunConfig
from albert_tf.training.task import Batch

#: Files that NVIDIA's driver creates on Linux.
_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidia0")


def make_strategy(config: RunConfig) -> Strategy:
    """Returns the strategy that `config.strategy` names.

    Raises:
      AlbertError: the devices it needs are missing.
    """
    if config.strategy == "default":
        device = "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
        return tf.distribute.OneDeviceStrategy(device)
    if config.strategy == "multi_worker":
        return join_cluster()
    if config.strategy == "tpu":
        with native_waiting():
            return _tpu_strategy(config.tpu_name or os.environ.get("TPU_NAME") or "local")
    gpus, names = tf.config.list_logical_devices("GPU"), mirrored_devices()
    if len(names) < 2:
        seen = "one GPU" if gpus else "no GPU"
        raise AlbertError(
            f"`strategy`=mirrored needs at least two GPUs, and TensorFlow sees {seen}; "
            f"`strategy`=default uses one device. {missing_gpu()}".strip()
        )
    # Collectives on CPUs interfere with each other if a process creates two strategies.
    cross_device = None if gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(names, cross_device_ops=cross_device)


def mirrored_devices() -> list[str]:
    """Returns the names of all GPUs, or of all logical CPUs if there is no GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return [device.name for device in gpus or tf.config.list_logical_devices("CPU")]


@functools.cache
def _tpu_strategy(name: str) -> Strategy:
    """Connects to a TPU; cached, as its initialization takes long and clears its memory."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # The resolver raises any error of its transport: gRPC, HTTP, credentials, missing packages.
    except Exception as error:
        raise AlbertError(f"The TPU {name!r} cannot be used: {first_line(error)}") from error
    return tf.distribute.TPUStrategy(resolver)


def check_tpu_run(batch: Mapping[str, tf.TensorSpec]) -> None:
    """Raises AlbertError if an input pipeline's batches have several shapes: a TPU needs one."""
    for name, spec in batch.items():
        if not spec.shape.is_fully_defined():
            raise AlbertError(
                f"A TPU needs batches of one shape, and {name} has {spec.shape}; pass `pad_to_max` "
                "for sequences of one length, and drop batches that are not full."
            )


def fast_precisions(strategy: Strategy) -> tuple[str, ...]:
    """Returns the precisions that are fast on the devices, the best first and float32 last.

    NVIDIA's Volta and Turing (7.x) have matrix units for float16 alone. From Ampere (8.0) on they
    have them for both types, and bfloat16 needs no loss scale.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return BFLOAT16, FLOAT32
    if details := gpu_details(strategy):
        # Of the oldest one; GPUs of other makers may have none.
        capability = min(detail.get("compute_capability", (0, 0)) for detail in details)
        if capability < (7, 0):
            return (FLOAT32,)
        return (FLOAT16, FLOAT32) if capability < (8, 0) else (BFLOAT16, FLOAT16, FLOAT32)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            features = f.read()
    except OSError:  # Not Linux.
        return (FLOAT32,)
    has_units = "amx_bf16" in features or "avx512_bf16" in features
    return (BFLOAT16, FLOAT32) if has_units else (FLOAT32,)


@functools.cache
def print_once(text: str) -> None:
    """Prints a line, once a process."""
    log.info(text)


def announce_devices(strategy: Strategy) -> None:
    """Prints, once a process, the devices of a strategy, and why a GPU is not used."""
    devices = devices_of(strategy)
    kind, count = devices[0].device_type, len(devices)
    text = f"{count} {kind}{'s' if count > 1 else ''}"
    if kind == "GPU":
        names = dict.fromkeys(x.get("device_name", "unknown") for x in gpu_details(strategy))
        text += f" ({', '.join(names)})"
        total = len(tf.config.list_logical_devices("GPU"))
        if count < total:
            text += f" of {total}, all of which the mirrored strategy uses"
    print_once(f"Devices: {text}.")
    if kind == "CPU" and (reason := missing_gpu()):
        print_once(reason)


def devices_of(strategy: Strategy) -> list[tf.DeviceSpec]:
    """Returns the devices that a strategy uses in this process."""
    return [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]


def gpu_details(strategy: Strategy) -> list[dict[str, Any]]:
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
    return (
        "This machine has an NVIDIA driver, but TensorFlow sees no GPU. Unless "
        "CUDA_VISIBLE_DEVICES hides it, install CUDA's libraries with pip install "
        f'"tensorflow[and-cuda]=={tf.__version__}", and start containers with their GPUs, as with '
        "docker run --gpus all; with TF_CPP_MIN_LOG_LEVEL=0 TensorFlow says what it lacks."
    )


def mode_chooser(strategy: Strategy, jit_compile: bool | str) -> Callable[[Batch], GraphMode]:
    """Returns a function that tells of a batch the mode of its step.

    For "auto" (see RunConfig), XLA compiles the step if it runs on a single NVIDIA GPU for which
    XLA can compile here, and all batches have one length: XLA compiles anew for each. On a TPU
    everything is compiled anyway.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return lambda batch: GraphMode.TPU
    uncompiled = GraphMode.GPU if tf.config.get_visible_devices("GPU") else GraphMode.CPU
    auto = jit_compile == AUTO
    if not (_suits(strategy) if auto else jit_compile):
        return lambda batch: uncompiled

    def mode(batch) -> GraphMode:
        fixed = all(value.shape[1:].is_fully_defined() for value in batch.values())
        return GraphMode.XLA if fixed or not auto else uncompiled

    return mode


def _suits(strategy: Strategy) -> bool:
    """Returns whether to compile on these devices, if batches have one length."""
    details = gpu_details(strategy)
    nvidia = details and "compute_capability" in details[0]
    if strategy.num_replicas_in_sync > 1 or not nvidia:
        return False
    if not has_compiler():
        print_once(
            "Steps run without XLA, which lacks NVIDIA's ptxas; "
            f'pip install "tensorflow[and-cuda]=={tf.__version__}" brings it.'
        )
        return False
    return True


def has_compiler() -> bool:
    """Returns whether ptxas is where XLA looks for it; without it XLA may end the process."""
    packages = os.path.dirname(os.path.dirname(tf.__file__))
    folders = (os.path.join(packages, "nvidia", "cuda_nvcc"), "/usr/local/cuda")
    found = any(os.path.exists(os.path.join(folder, "bin", "ptxas")) for folder in folders)
    return found or shutil.which("ptxas") is not None
