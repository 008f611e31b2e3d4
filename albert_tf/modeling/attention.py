# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention with its residual connection and layer normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.config import AlbertConfig
from albert_tf.modeling.kernels.attention import (
    attention_probs,
    joins_products,
    project_heads,
    tpu_attention,
)
from albert_tf.modeling.kernels.dense import cast_for_layers, layer_norm
from albert_tf.modeling.kernels.dropout import affine_terms_with_dropout, dropout, dropout_function
from albert_tf.modeling.kernels.graph_mode import GraphMode, current_mode
from albert_tf.modeling.layers import Dense, Policy, WeightedLayer, dimension

#: Chooses the positions whose outputs are read: maps [B, S, H] to [B, P, H].
Select = Optional[Callable[[Tensor], Tensor]]


def additive_mask(input_mask: Tensor) -> Tensor:
    """Turns int [B, S] (1: may be attended to) into float32 [B, 1, 1, S] of 0 and -10000."""
    # Not mask[:, None, None]: TensorFlow Lite supports only one None.
    mask = tf.expand_dims(tf.expand_dims(tf.cast(input_mask, tf.float32), 1), 1)
    return (mask - 1.0) * 10000.0


#: The dense layers of query, key and value, [H, H] each, or if `joins_products` one, [H, 3 H], that
#: has them side by side; and that of the heads' outputs, [H, H].
AttentionWeights = tuple[tuple[Dense, ...], Dense]


class Attention(WeightedLayer):
    """Scaled dot-product attention of BERT, with layer normalisation after the residual sum."""

    def __init__(self, config: AlbertConfig, prefix: str, dtype: Policy) -> None:
        super().__init__(prefix, config.initializer_range, dtype)
        size = config.hidden_size
        self._size, self._heads = size, config.num_attention_heads
        self._hidden_dropout = config.hidden_dropout_prob
        self._probs_dropout = config.attention_probs_dropout_prob
        self._projections = tuple(
            self.dense(f"attention_1/self/{name}", size, size) for name in ("query", "key", "value")
        )
        self._output = self.dense("attention_1/output/dense", size, size)
        self._norm = self.norm("LayerNorm", size)

    def weights_for_layers(self, uses: int) -> list[AttentionWeights]:
        """Casts the weights, and returns a copy for each of `uses` layers."""
        projections = self._projections
        if joins_products():
            projections = (tuple(tf.concat(parts, axis=-1) for parts in zip(*projections)),)
        return cast_for_layers((projections, self._output), self.compute_dtype, uses)

    def call(
        self,
        x: Tensor,
        mask: Tensor,
        weights: AttentionWeights,
        training: bool = False,
        select: Select = None,
    ) -> Tensor:
        """Applies the block.

        Takes x [B * S, H] in the compute type, or [B, S, H] in the mode TPU; mask float32
        [B, 1, 1, S], see `additive_mask`; and a copy from `weights_for_layers` of this forward
        pass. `select` chooses the P positions to compute, which attend to all S. Returns a tensor
        like x, with P positions in place of S if there is `select`.
        """
        count = length = dimension(mask, 3)
        chosen = x
        if select is not None:
            chosen = select(tf.reshape(x, [-1, length, self._size]))
            count = dimension(chosen, 1)
            if x.shape.rank == 2:
                chosen = tf.reshape(chosen, [-1, self._size])
        projections, output = weights
        if joins_products() and select is not None:
            ((kernel, bias),) = projections
            sizes = [self._size, 2 * self._size]
            projections = zip(tf.split(kernel, sizes, axis=1), tf.split(bias, sizes))
        sources = (chosen, count), (x, length), (x, length)
        query, key, value = (
            heads
            for (rows, positions), dense in zip(sources, projections)
            for heads in project_heads(
                rows, *dense, positions, self._heads, self._size // self._heads
            )
        )
        if current_mode() is GraphMode.TPU:
            drop = dropout_function(self._probs_dropout, training)
            context = tpu_attention(query, key, value, mask, drop)
            context = tf.reshape(context, [-1, count, self._size])
        else:
            probs = attention_probs(query, key, mask)  # [B, N, P, S]
            probs = dropout(probs, self._probs_dropout, training)
            context = tf.transpose(tf.matmul(probs, value), [0, 2, 1, 3])  # [B, P, N, d]
            context = tf.reshape(context, [-1, self._size])
        terms = affine_terms_with_dropout(context, *output, self._hidden_dropout, training)
        return layer_norm([*terms, chosen], *self._norm)
