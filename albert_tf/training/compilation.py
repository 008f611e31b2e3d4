# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Decides how a step is computed, and whether XLA compiles it; see docs/clusters.md for reasons."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Mapping

import tensorflow as tf

from albert_tf.modeling.kernels.graph_mode import GraphMode
from albert_tf.training.specs import AUTO
from albert_tf.training.strategy import gpu_details, print_once

#: Where a CUDA toolkit may be, besides the folder of NVIDIA's Python packages.
_TOOLKITS = ("/usr/local/cuda",)


def mode_chooser(
    strategy: tf.distribute.Strategy, jit_compile: bool | str
) -> Callable[[Mapping[str, tf.Tensor]], GraphMode]:
    """Returns a function that tells of a batch the mode of its step.

    For "auto" XLA compiles the step, if it runs on a single NVIDIA GPU for which XLA can compile
    here, and all batches have one length: XLA compiles anew for each.

    Args:
      strategy: the devices. On a TPU everything is compiled anyway.
      jit_compile: see RunConfig.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return lambda batch: GraphMode.TPU
    uncompiled = GraphMode.GPU if tf.config.get_visible_devices("GPU") else GraphMode.CPU
    if jit_compile != AUTO:
        return lambda batch: GraphMode.XLA if jit_compile else uncompiled
    if not _suits(strategy):
        return lambda batch: uncompiled
    return lambda batch: (
        GraphMode.XLA
        if all(value.shape[1:].is_fully_defined() for value in batch.values())
        else uncompiled
    )


def _suits(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether to compile on these devices, if batches have one length."""
    details = gpu_details(strategy)
    if strategy.num_replicas_in_sync > 1 or not details:
        return False
    if "compute_capability" not in details[0]:  # Not NVIDIA's.
        return False
    if lacking := missing_compiler():
        print_once(
            f"Steps run without XLA, which lacks NVIDIA's {lacking}; "
            f'pip install "tensorflow[and-cuda]=={tf.__version__}" brings it.'
        )
        return False
    return can_compile(strategy.extended.worker_devices[0])


def missing_compiler() -> str:
    """Returns which part of NVIDIA's compiler XLA will not find, or "".

    Without ptxas XLA may end the process instead of raising an error.
    """
    packages = os.path.dirname(os.path.dirname(tf.__file__))
    given = re.findall(r"--xla_gpu_cuda_data_dir=(\S+)", os.environ.get("XLA_FLAGS", ""))
    folders = [*given, os.path.join(packages, "nvidia", "cuda_nvcc"), *_TOOLKITS]

    def exists(*name: str) -> bool:
        return any(os.path.exists(os.path.join(folder, *name)) for folder in folders)

    if not (exists("bin", "ptxas") or shutil.which("ptxas")):
        return "ptxas"
    return "" if exists("nvvm", "libdevice", "libdevice.10.bc") else "libdevice.10.bc"


@functools.cache
def can_compile(device: str) -> bool:
    """Compiles and runs a small function on a device; says why if that fails."""
    # It needs NVIDIA's library of functions, as all of our steps do.
    function = tf.function(lambda x: tf.math.rsqrt(tf.exp(x)), jit_compile=True, autograph=False)
    try:
        with tf.device(device):
            function(tf.constant(1.0))
    except tf.errors.OpError as error:
        reason = str(error).strip().partition("\n")[0]
        print_once(f"Steps run without XLA, which cannot compile for {device}: {reason}")
        return False
    return True
