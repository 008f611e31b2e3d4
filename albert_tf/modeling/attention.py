# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention with its residual connection and layer normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.kernels.attention_probs import attention_probs
from albert_tf.modeling.kernels.dropout import (
    affine_terms_with_dropout,
    dropout,
    dropout_function,
)
from albert_tf.modeling.kernels.graph_mode import current_mode
from albert_tf.modeling.kernels.layer_norm import layer_norm
from albert_tf.modeling.kernels.linear import affine, affine_terms, shared
from albert_tf.modeling.kernels.split_heads import split_heads
from albert_tf.modeling.kernels.tpu_attention import tpu_attention
from albert_tf.modeling.layers import PackedWeights, Policy, WeightedLayer, dimension

#: Chooses the positions whose outputs are read: maps [B, S, H] to [B, P, H].
Select = Optional[Callable[[tf.Tensor], tf.Tensor]]


def additive_mask(input_mask: tf.Tensor) -> tf.Tensor:
    """Turns int [B, S] (1: may be attended to) into float32 [B, 1, 1, S] of 0 and -10000."""
    # Not mask[:, None, None]: TensorFlow Lite supports only one None.
    mask = tf.expand_dims(tf.expand_dims(tf.cast(input_mask, tf.float32), 1), 1)
    return (mask - 1.0) * 10000.0


class Attention(WeightedLayer):
    """Scaled dot-product attention of BERT, with layer normalisation after the residual sum."""

    def __init__(self, config: AlbertConfig, prefix: str, dtype: Policy = None) -> None:
        super().__init__(prefix, config.initializer_range, dtype)
        size = config.hidden_size
        self._heads = config.num_attention_heads
        self._head_size = size // self._heads
        self._hidden_dropout = config.hidden_dropout_prob
        self._probs_dropout = config.attention_probs_dropout_prob
        self._query = self.dense("attention_1/self/query", size, size)
        self._key = self.dense("attention_1/self/key", size, size)
        self._value = self.dense("attention_1/self/value", size, size)
        self._output = self.dense("attention_1/output/dense", size, size)
        self._norm = self.norm("LayerNorm", size)

    def packed_weights(self, uses: int = 1) -> list[PackedWeights]:
        """Joins and casts the weights once, and returns a copy for each of `uses` layers.

        A copy has the kernel [H, 3 H] and the bias [3 H] of query, key and value side by side, and
        the kernel [H, H] and the bias [H] of the output, in the compute type. If
        `GraphMode.served`, the three kernels and biases are not joined.
        """
        kernels, biases = zip(self._query, self._key, self._value)
        if current_mode().served:
            # To join them would copy megabytes in every call, for the sake of larger products.
            weights = (*kernels, *biases, *self._output)
        else:
            weights = (tf.concat(kernels, axis=1), tf.concat(biases, axis=0), *self._output)
        return shared(weights, self.compute_dtype, uses)

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        weights: PackedWeights,
        training: bool = False,
        select: Select = None,
    ) -> tf.Tensor:
        """Applies the block.

        Args:
          x: [B * S, H] in the compute type, or [B, S, H] if `GraphMode.for_tpu`.
          mask: float32 [B, 1, 1, S], see `additive_mask`.
          weights: a copy from `packed_weights`, made in this forward pass.
          training: whether dropout is active.
          select: chooses the P positions to compute; they attend to all S. None: all positions.

        Returns:
          A tensor like x, with P positions in place of S if there is `select`.
        """
        *inputs, output_kernel, output_bias = weights
        count = length = dimension(mask, 3)
        chosen = x
        if select is not None:
            chosen = select(tf.reshape(x, [-1, length, x.shape[-1]]))
            count = dimension(chosen, 1)
            if x.shape.rank == 2:
                chosen = tf.reshape(chosen, [-1, x.shape[1]])
        context = self._context(chosen, count, x, mask, inputs, training)
        output = affine_terms_with_dropout(
            context, output_kernel, output_bias, self._hidden_dropout, training
        )
        return layer_norm([*output, chosen], *self._norm, training=training)

    def _context(
        self,
        chosen: tf.Tensor,
        count: int | tf.Tensor,
        x: tf.Tensor,
        mask: tf.Tensor,
        weights: Sequence[tf.Tensor],
        training: bool,
    ) -> tf.Tensor:
        """Returns the heads' outputs side by side, [B * P, H], or [B, P, H] on a TPU.

        Args:
          chosen: like x, of the P positions that attend.
          count: P.
          x: see `call`.
          mask: see `call`.
          weights: of query, key and value; see `packed_weights`.
          training: whether dropout is active.
        """
        length = dimension(mask, 3)
        mode = current_mode()
        if not mode.served and not mode.for_tpu():
            heads = self._project(chosen, count, x, length, *weights, training)
            return self._weighted_values(*heads, mask, training)
        if mode.served:
            parts = zip(weights[:3], weights[3:])
        else:
            # Of one product [B, S, 3 H], XLA on TPUs would have to cut out and copy each part.
            kernel, bias = weights
            parts = zip(tf.split(kernel, 3, axis=1), tf.split(bias, 3))
        rows = ((chosen, count), (x, length), (x, length))
        projections = tuple(
            tf.reshape(affine(y, *part), [-1, positions, self._heads, self._head_size])
            for (y, positions), part in zip(rows, parts)
        )  # Query [B, P, N, d], key and value [B, S, N, d].
        if mode.for_tpu():
            drop = dropout_function(self._probs_dropout, training)
            context = tpu_attention(projections, mask, drop)
            return tf.reshape(context, [-1, count, self._heads * self._head_size])
        query, key, value = (tf.transpose(y, [0, 2, 1, 3]) for y in projections)
        return self._weighted_values(query, key, value, mask, training)

    def _project(
        self,
        chosen: tf.Tensor,
        count: int | tf.Tensor,
        x: tf.Tensor,
        length: int | tf.Tensor,
        kernel: tf.Tensor,
        bias: tf.Tensor,
        training: bool,
    ) -> tuple[tf.Tensor, ...]:
        """Returns query [B, N, P, d], key and value [B, N, S, d]; see `_context`."""

        def heads(y: tf.Tensor, positions: int | tf.Tensor, *weights: tf.Tensor) -> tuple:
            terms = affine_terms(y, *weights, training)
            return split_heads(terms, positions, self._heads, self._head_size, training)

        if chosen is x:
            return heads(x, length, kernel, bias)
        size = self._heads * self._head_size
        kernels, biases = (tf.split(y, [size, 2 * size], axis=-1) for y in (kernel, bias))
        return (
            *heads(chosen, count, kernels[0], biases[0]),
            *heads(x, length, kernels[1], biases[1]),
        )

    def _weighted_values(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor, training: bool
    ) -> tf.Tensor:
        """Attends with query [B, N, P, d] to key and value [B, N, S, d]; returns [B * P, H]."""
        probs = attention_probs(query, key, mask, training)  # [B, N, P, S]
        probs = dropout(probs, self._probs_dropout, training)
        context = tf.transpose(tf.matmul(probs, value), [0, 2, 1, 3])  # [B, P, N, d]
        return tf.reshape(context, [-1, self._heads * self._head_size])
