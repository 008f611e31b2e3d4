# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cloud TPUs: how one is found, and what it demands of a run. See docs/cloud_tpu.md."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.training.specs import PRECISIONS, RunConfig, check_batch_sizes

#: The name of the TPU of this machine.
LOCAL = "local"
_DEVICES = ("/dev/accel0", "/dev/vfio/0")
_DTYPES = (tf.int32, tf.float32, tf.bool)


def tpu_name(config: RunConfig) -> str:
    """The TPU that a run is for: --tpu_name, else the environment's TPU_NAME, else LOCAL."""
    return config.tpu_name or os.environ.get("TPU_NAME") or LOCAL


def make_tpu_strategy(config: RunConfig) -> tf.distribute.Strategy:
    """Connects to the TPU and starts it, once a process, and returns its strategy.

    Raises:
      AlbertError: there is none, or it cannot be used.
    """
    name = tpu_name(config)
    return _connected(name, config.tpu_zone, config.gcp_project)


@functools.cache
def _connected(name: str, zone: str | None, project: str | None) -> tf.distribute.Strategy:
    """A TPU is started once a process: that takes long, and ends what was there before."""
    if name == LOCAL and not any(map(os.path.exists, _DEVICES)):
        raise AlbertError(
            "--strategy=tpu found no TPU on this machine; run on a TPU VM, or name a TPU by "
            "--tpu_name (with --tpu_zone and --gcp_project), or use --strategy=default."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # The resolver raises whatever its transport does: gRPC, HTTP, credentials, missing packages.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise AlbertError(f"The TPU {name!r} cannot be used: {reason}") from error
    return tf.distribute.TPUStrategy(resolver)


def check_tpu_run(
    config: RunConfig, replicas: int, batch: Mapping[str, tf.TensorSpec], paths: Sequence[str] = ()
) -> None:
    """All that a TPU demands of a run and that can be told before its first step.

    - Every core gets the same number of rows: the batch divides by cores × micro-batches.
    - Programs are compiled for one shape: batches have neither a last part that is smaller nor
      several lengths. Vocabulary and hidden sizes may be anything; XLA pads them.
    - Values are numbers that the cores have: no text, no 64-bit numbers.
    - Cores compute in bfloat16 and float32; there is no float16.
    - What runs on the cores is compiled in any case, and not by a compiler within it.
    - The machines of a TPU that is not this one's read records and write checkpoints by
      themselves, and reach buckets, but not the disks of the machine that gives the commands.

    That the step has no operation on the host, and none that bfloat16 lacks, the tests show.

    Args:
      config: of the run, with its precision chosen.
      replicas: cores of the TPU.
      batch: shapes and types of an input pipeline's batches.
      paths: files that the pipelines read.

    Raises:
      AlbertError: one of these is not so.
    """
    check_batch_sizes(config, replicas)
    if config.precision not in PRECISIONS:
        raise AlbertError(
            f"A TPU does not compute in {config.precision}; use --precision=mixed_bfloat16."
        )
    if config.jit_compile:
        raise AlbertError("A TPU compiles everything by itself; leave --jit_compile out.")
    for name, spec in batch.items():
        if not spec.shape.is_fully_defined():
            raise AlbertError(
                f"A TPU needs batches of one shape, and {name} has {spec.shape}; set --pad_to_max "
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
                f"The machines of the TPU {name!r} cannot reach {path}; put records, "
                "--output_dir and --cached_dir into a bucket, gs://…."
            )
