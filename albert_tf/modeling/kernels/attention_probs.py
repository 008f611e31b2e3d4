# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention probabilities from queries and keys."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.modeling.kernels.fusion import custom_gradient, fused, row_sums
from albert_tf.modeling.kernels.graph_mode import current_mode


@fused
def _scores_gradient(probs: tf.Tensor, dprobs: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    p, dp = tf.cast(probs, tf.float32), tf.cast(dprobs, tf.float32)
    dscores = p * (dp - row_sums(p * dp)) * scale
    return tf.cast(dscores, probs.dtype)


def attention_probs(
    query: tf.Tensor, key: tf.Tensor, mask: tf.Tensor, training: bool = False
) -> tf.Tensor:
    """Returns softmax(query · key / √d + mask).

    Args:
      query: [B, N, P, d], of the P positions that attend.
      key: [B, N, S, d] of the same type.
      mask: float32 [B, 1, 1, S], see `attention.additive_mask`.
      training: whether a backward pass follows.

    Returns:
      [B, N, P, S] in the type of query.
    """
    scale = query.shape[3] ** -0.5
    is_float16 = query.dtype == tf.float16
    # In bfloat16, oneDNN's product also scales and masks, and its softmax computes in float32. The
    # softmax of other kernels would compute in the type of its input.
    dtype = query.dtype if current_mode().fuses(training) and not is_float16 else tf.float32

    @custom_gradient
    def function(query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        factor = tf.constant(scale, query.dtype)
        if is_float16:  # Of large heads, the product alone may exceed 65504.
            scores = tf.matmul(query * factor, key, transpose_b=True)
        else:
            scores = tf.matmul(query, key, transpose_b=True) * factor
        probs = tf.nn.softmax(tf.cast(scores, dtype) + tf.cast(mask, dtype))
        probs = tf.cast(probs, query.dtype)

        def grad(dprobs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            dscores = _scores_gradient(probs, dprobs, tf.constant(scale), training=training)
            return tf.matmul(dscores, key), tf.matmul(dscores, query, transpose_a=True)

        return probs, grad

    return function(query, key)
