# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Connects to Cloud TPUs and checks their requirements. See docs/not_run.md."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.training.specs import RunConfig

#: Names the TPU of this machine.
LOCAL = "local"
_DEVICES = ("/dev/accel0", "/dev/vfio/0")
_DTYPES = (tf.int32, tf.float32, tf.bool)


def tpu_name(config: RunConfig) -> str:
    """Returns the name of the TPU: `tpu_name`, else the environment's TPU_NAME, else LOCAL."""
    return config.tpu_name or os.environ.get("TPU_NAME") or LOCAL


@functools.cache
def tpu_strategy(name: str) -> tf.distribute.Strategy:
    """Connects to a TPU, initializes it and returns its strategy.

    Cached: initializing a TPU takes long and clears its memory.

    Raises:
      AlbertError: there is no TPU, or it cannot be used.
    """
    if name == LOCAL and not any(map(os.path.exists, _DEVICES)):
        raise AlbertError(
            "`strategy`=tpu found no TPU on this machine; run on a TPU VM, or name a TPU with "
            "`tpu_name`, or use `strategy`=default."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # The resolver raises any error of its transport: gRPC, HTTP, credentials, missing packages.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise AlbertError(f"The TPU {name!r} cannot be used: {reason}") from error
    return tf.distribute.TPUStrategy(resolver)


def check_tpu_run(
    config: RunConfig, batch: Mapping[str, tf.TensorSpec], paths: Sequence[str] = ()
) -> None:
    """Checks the requirements of a TPU that can be known before the first step.

    docs/not_run.md lists them; RunConfig checks the one on precisions. Tests show that
    the step has no operation on the host, and none that bfloat16 lacks.

    Args:
      config: with `strategy`=tpu.
      batch: shapes and types of the batches of an input pipeline.
      paths: files that the pipelines read.

    Raises:
      AlbertError: a requirement is not met.
    """
    if config.jit_compile is True:
        raise AlbertError("TPUs always compile with XLA; leave out `jit_compile`.")
    for name, spec in batch.items():
        if not spec.shape.is_fully_defined():
            raise AlbertError(
                f"A TPU needs batches of one shape, and {name} has {spec.shape}; set `pad_to_max` "
                "for sequences of one length, and drop batches that are not full."
            )
        if spec.dtype not in _DTYPES:
            raise AlbertError(
                f"A TPU cannot read {name}, which is of type {spec.dtype.name}; give 32-bit "
                "numbers."
            )
    name = tpu_name(config)
    if name == LOCAL:
        return
    for path in (config.output_dir, *paths):
        if not path.startswith("gs://"):
            raise AlbertError(
                f"The machines of the TPU {name!r} cannot reach {path}; put records "
                "and `output_dir` into a bucket, gs://…."
            )
