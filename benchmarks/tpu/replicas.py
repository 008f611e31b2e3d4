# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""One of several replicas, without the TPU system that tf.distribute.TPUStrategy asks for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class SummingReplica(tf.distribute.ReplicaContext):
    """A replica whose sums are operations of its XLA program, as on a TPU.

    TPUStrategy turns `all_reduce` into CrossReplicaSum, which TensorFlow lowers for TPUs only, like
    XlaAllReduce. CollectiveReduceV2 becomes the same operation of XLA, and is lowered anywhere.

    Args:
      replicas: number of all replicas.
    """

    def __init__(self, replicas: int) -> None:
        super().__init__(tf.distribute.get_strategy(), 0)
        self._replicas = replicas

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of all replicas."""
        return self._replicas

    def all_reduce(self, reduce_op: tf.distribute.ReduceOp, value: Any, options: Any = None) -> Any:
        """Returns the sums of a structure of tensors over all replicas."""
        if reduce_op != tf.distribute.ReduceOp.SUM:
            raise NotImplementedError(f"SummingReplica computes sums, not {reduce_op}.")
        tensors = tf.nest.flatten(value)
        sums = [
            tf.raw_ops.CollectiveReduceV2(
                input=tensor,
                group_size=self._replicas,
                group_key=0,
                instance_key=key,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
            )
            for key, tensor in enumerate(tensors)
        ]
        return tf.nest.pack_sequence_as(value, sums)
