# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention with its residual connection and layer normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.kernels.attention_probs import attention_probs
from albert_tf.modeling.kernels.dropout import dropout, dropout_function
from albert_tf.modeling.kernels.graph_mode import current_mode
from albert_tf.modeling.kernels.layer_norm import layer_norm
from albert_tf.modeling.kernels.linear import affine, shared
from albert_tf.modeling.kernels.tpu_attention import tpu_attention
from albert_tf.modeling.layers import PackedWeights, Policy, WeightedLayer, dimension


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
        self, x: tf.Tensor, mask: tf.Tensor, weights: PackedWeights, training: bool = False
    ) -> tf.Tensor:
        """Applies the block.

        Args:
          x: [B * S, H] in the compute type, or [B, S, H] if `GraphMode.for_tpu`.
          mask: float32 [B, 1, 1, S], see `additive_mask`.
          weights: a copy from `packed_weights`, made in this forward pass.
          training: whether dropout is active.

        Returns:
          A tensor like x.
        """
        *inputs, output_kernel, output_bias = weights
        attend = self._context_on_tpu if current_mode().for_tpu() else self._context
        output = affine(attend(x, mask, inputs, training), output_kernel, output_bias)
        output = dropout(output, self._hidden_dropout, training)
        return layer_norm(output, *self._norm, residual=x, training=training)

    def _context(
        self, x: tf.Tensor, mask: tf.Tensor, weights: Sequence[tf.Tensor], training: bool
    ) -> tf.Tensor:
        """Returns the heads' outputs side by side, [B * S, H]."""
        length, heads, head_size = dimension(mask, 3), self._heads, self._head_size
        if current_mode().served:
            shape = [-1, length, heads, head_size]
            query, key, value = (
                tf.transpose(tf.reshape(affine(x, *part), shape), [0, 2, 1, 3])  # [B, N, S, d]
                for part in zip(weights[:3], weights[3:])
            )
        else:
            qkv = tf.reshape(affine(x, *weights), [-1, length, 3, heads, head_size])
            query, key, value = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))  # [B, N, S, d]
        probs = attention_probs(query, key, mask, training)  # [B, N, S, S]
        probs = dropout(probs, self._probs_dropout, training)
        context = tf.transpose(tf.matmul(probs, value), [0, 2, 1, 3])  # [B, S, N, d]
        return tf.reshape(context, [-1, heads * head_size])

    def _context_on_tpu(
        self, x: tf.Tensor, mask: tf.Tensor, weights: Sequence[tf.Tensor], training: bool
    ) -> tf.Tensor:
        """Returns the heads' outputs side by side, [B, S, H]."""
        kernel, bias = weights
        # Of one product [B, S, 3 H] the compiler would have to cut out and copy each of the three.
        parts = zip(tf.split(kernel, 3, axis=1), tf.split(bias, 3))
        shape = [-1, dimension(mask, 3), self._heads, self._head_size]
        query, key, value = (tf.reshape(affine(x, *part), shape) for part in parts)
        drop = dropout_function(self._probs_dropout, training)
        context = tpu_attention((query, key, value), mask, drop)
        return tf.reshape(context, [*shape[:2], self._heads * self._head_size])
