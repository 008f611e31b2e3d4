# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention for TPUs, where reading and writing [B, N, S, S] takes longer than the products."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from albert_tf.modeling.kernels.fusion import custom_gradient


def tpu_attention(
    projections: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    mask: tf.Tensor,
    drop: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Returns dropout(softmax(query · key / √d + mask)) · value; only XLA can run it.

    The probabilities are exponentials divided by their sums. Here the result is divided instead,
    which has d columns and not S. The gradient of the softmax needs Σ p · dp over each row of the
    probabilities p, which is the product of the row's result and its gradient (Dao et al., 2022,
    "FlashAttention", appendix B.2). Thus every pass over [B, N, S, S] becomes part of a product.
    The exponentials are kept for the backward pass.

    Args:
      projections: query [B, P, N, d] of the P positions that attend, key and value [B, S, N, d];
        of one type.
      mask: float32 [B, 1, 1, S], see `attention.additive_mask`.
      drop: of the probabilities, see `dropout_function`.

    Returns:
      [B, P, N, d] in the type of the projections.
    """
    dtype, scale = projections[0].dtype, projections[0].shape[3] ** -0.5

    def float32(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(x, tf.float32)

    @custom_gradient
    def function(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        scores = float32(tf.einsum("bqnd,bknd->bnqk", query, key)) * scale + mask
        exponentials = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
        sums = tf.reduce_sum(exponentials, axis=-1)  # [B, N, P]
        # Without a barrier the compiler stores the scores and computes the exponentials four times.
        exponentials, sums = xla.optimization_barrier(tf.cast(exponentials, dtype), sums)
        of_rows = (1.0 / sums)[..., None]  # [B, N, P, 1]
        of_context = tf.transpose(of_rows, [0, 2, 1, 3])  # [B, P, N, 1]
        context = tf.einsum("bnqk,bknd->bqnd", drop(exponentials), value)
        context = tf.cast(float32(context) * of_context, dtype)

        def grad(dcontext: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            products = tf.reduce_sum(float32(dcontext) * float32(context), axis=-1)  # [B, P, N]
            products = tf.transpose(products, [0, 2, 1])[..., None]  # [B, N, P, 1]
            dprobs = drop(tf.einsum("bqnd,bknd->bnqk", dcontext, value))
            dscores = float32(exponentials) * (float32(dprobs) - products) * (scale * of_rows)
            dscores = tf.cast(dscores, dtype)
            dcontext = tf.cast(float32(dcontext) * of_context, dtype)
            return (
                tf.einsum("bnqk,bknd->bqnd", dscores, key),
                tf.einsum("bnqk,bqnd->bknd", dscores, query),
                tf.einsum("bnqk,bqnd->bknd", drop(exponentials), dcontext),
            )

        return context, grad

    return function(*projections)
