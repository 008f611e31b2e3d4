# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits the result of a dense layer into the queries, keys and values of attention heads."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.modeling.kernels.fusion import custom_gradient, fused
from albert_tf.modeling.kernels.linear import gradients_of_terms, sum_in_float32


@fused
def _split(*terms: tf.Tensor) -> tf.Tensor:
    """Adds an optional bias [n, N, d] to [B, S, n, N, d]; returns [n, B, N, S, d]."""
    x, *bias = terms
    if bias:
        x = tf.cast(sum_in_float32(x, *bias), x.dtype)
    return tf.transpose(x, [2, 0, 3, 1, 4])


@fused
def _join(*parts: tf.Tensor) -> tf.Tensor:
    """Turns n tensors [B, N, S, d] into [B, S, n, N, d]."""
    return tf.stack([tf.transpose(part, [0, 2, 1, 3]) for part in parts], axis=2)


def split_heads(
    terms: Sequence[tf.Tensor],
    length: int | tf.Tensor,
    num_heads: int,
    head_size: int,
    training: bool = False,
) -> tuple[tf.Tensor, ...]:
    """Adds up the terms and splits the sum into n parts, such as query, key and value, by head.

    Args:
      terms: see `affine_terms`: [B * S, n * N * d], and optionally a bias [n * N * d].
      length: S.
      num_heads: N.
      head_size: d.
      training: whether a backward pass follows.

    Returns:
      n tensors [B, N, S, d] of the type of the terms.
    """
    width = terms[0].shape[1]
    by_head = [width // (num_heads * head_size), num_heads, head_size]

    @custom_gradient
    def function(x: tf.Tensor, *bias: tf.Tensor) -> tuple[tf.Tensor, ...]:
        def grad(*dparts: tf.Tensor) -> list[tf.Tensor]:
            dx = tf.reshape(_join(*dparts, training=training), [-1, width])
            return gradients_of_terms([x, *bias], dx)

        rows = tf.reshape(x, [-1, length, *by_head])
        biases = [tf.reshape(b, by_head) for b in bias]
        parts = _split(rows, *biases, training=training)
        # TensorFlow's graph optimizer does not know the shapes of a compiled kernel's results, and
        # would not fuse scale and mask into the attention's product.
        parts = tf.reshape(parts, [by_head[0], -1, num_heads, length, head_size])
        return tuple(tf.unstack(parts)), grad

    return function(*terms)
