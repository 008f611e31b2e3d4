# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries, keys and values by head, and the attention probabilities."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow import Tensor
from tensorflow.compiler.tf2xla.python import xla

from albert_tf.modeling.kernels.dense import (
    affine,
    affine_terms,
    gradients_of_terms,
    sum_in_float32,
)
from albert_tf.modeling.kernels.graph_mode import (
    GraphMode,
    cpu_kernel,
    current_mode,
    own_gradient,
    row_sums,
)


def joins_products() -> bool:
    """Returns whether query, key and value are one product, the faster way for training.

    Where a graph only answers, joining the kernels would copy megabytes in every call. XLA on TPUs
    would have to cut out and copy each part of the product.
    """
    return current_mode() in (GraphMode.CPU, GraphMode.GPU, GraphMode.XLA)


@cpu_kernel
def _split(*terms: Tensor) -> Tensor:
    """Adds an optional bias [n, N, d] to [B, S, n, N, d]; returns [n, B, N, S, d]."""
    x, *bias = terms
    if bias:
        x = tf.cast(sum_in_float32(x, *bias), x.dtype)
    return tf.transpose(x, [2, 0, 3, 1, 4])


@cpu_kernel
def _join(*parts: Tensor) -> Tensor:
    """Turns n tensors [B, N, S, d] into [B, S, n, N, d]."""
    return tf.stack([tf.transpose(part, [0, 2, 1, 3]) for part in parts], axis=2)


def project_heads(
    x: Tensor, kernel: Tensor, bias: Tensor, length: int | Tensor, num_heads: int, head_size: int
) -> list[Tensor]:
    """Applies n dense layers, which lie side by side, and splits the result by layer and head.

    Takes x [B * S, H], kernel [H, n * N * d] and bias [n * N * d] of one type, where n is 1 unless
    `joins_products`, and S, N, d. Returns n tensors [B, N, S, d]. In the mode TPU, x is [B, S, H]
    and the results [B, S, N, d].
    """
    if not joins_products():
        y = tf.reshape(affine(x, kernel, bias), [-1, length, num_heads, head_size])
        return [y if current_mode() is GraphMode.TPU else tf.transpose(y, [0, 2, 1, 3])]
    width = kernel.shape[1]
    by_head = [width // (num_heads * head_size), num_heads, head_size]

    @own_gradient
    def split(y, *bias) -> tuple[Tensor, ...]:
        def grad(*dparts) -> list[Tensor]:
            return gradients_of_terms([y, *bias], tf.reshape(_join(*dparts), [-1, width]))

        rows = tf.reshape(y, [-1, length, *by_head])
        parts = _split(rows, *(tf.reshape(b, by_head) for b in bias))
        # TensorFlow's graph optimizer does not know the shapes of a compiled kernel's results, and
        # would not fuse scale and mask into the attention's product.
        parts = tf.reshape(parts, [by_head[0], -1, num_heads, length, head_size])
        return tuple(tf.unstack(parts)), grad

    return list(split(*affine_terms(x, kernel, bias)))


@cpu_kernel
def _scores_gradient(probs: Tensor, dprobs: Tensor, scale: Tensor) -> Tensor:
    p, dp = tf.cast(probs, tf.float32), tf.cast(dprobs, tf.float32)
    return tf.cast(p * (dp - row_sums(p * dp)) * scale, probs.dtype)


def attention_probs(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """Returns softmax(query · key / √d + mask), [B, N, P, S] in the type of query.

    Takes query [B, N, P, d] of the P positions that attend, key [B, N, S, d] of the same type, and
    mask float32 [B, 1, 1, S], see `albert_tf.modeling.attention.additive_mask`.
    """
    scale = query.shape[3] ** -0.5
    is_float16 = query.dtype == tf.float16
    # In bfloat16, oneDNN's product also scales and masks, and its softmax computes in float32. The
    # softmax of other kernels would compute in the type of its input.
    dtype = tf.float32
    if current_mode() is GraphMode.CPU and not is_float16:
        dtype = query.dtype

    @own_gradient
    def function(query, key) -> Tensor:
        factor = tf.constant(scale, query.dtype)
        if is_float16:  # Of large heads, the product alone may exceed 65504.
            scores = tf.matmul(query * factor, key, transpose_b=True)
        else:
            scores = tf.matmul(query, key, transpose_b=True) * factor
        probs = tf.nn.softmax(tf.cast(scores, dtype) + tf.cast(mask, dtype))
        probs = tf.cast(probs, query.dtype)

        def grad(dprobs) -> tuple[Tensor, Tensor]:
            dscores = _scores_gradient(probs, dprobs, tf.constant(scale))
            return tf.matmul(dscores, key), tf.matmul(dscores, query, transpose_a=True)

        return probs, grad

    return function(query, key)


def tpu_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, drop: Callable[[Tensor], Tensor]
) -> Tensor:
    """Returns dropout(softmax(query · key / √d + mask)) · value, compiled by XLA for a TPU.

    There, reading and writing [B, N, P, S] takes longer than the products. The probabilities are
    exponentials divided by their sums. Here the result is divided instead, which has d columns and
    not S. The gradient of the softmax needs Σ p · dp over each row of the probabilities p, which is
    the product of the row's result and its gradient (Dao et al., 2022, "FlashAttention", appendix
    B.2). Thus every pass over [B, N, P, S] becomes part of a product. The exponentials are kept for
    the backward pass.

    Takes query [B, P, N, d] of the P positions that attend, key and value [B, S, N, d] of the same
    type, a mask as in `attention_probs`, and `drop` from `dropout_function` for the probabilities.
    Returns [B, P, N, d] in that type.
    """
    dtype, scale = query.dtype, query.shape[3] ** -0.5

    def float32(x) -> Tensor:
        return tf.cast(x, tf.float32)

    @own_gradient
    def function(query, key, value) -> Tensor:
        scores = float32(tf.einsum("bqnd,bknd->bnqk", query, key)) * scale + mask
        exponentials = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
        sums = tf.reduce_sum(exponentials, axis=-1)  # [B, N, P]
        # Without a barrier the compiler stores the scores and computes the exponentials four times.
        exponentials, sums = xla.optimization_barrier(tf.cast(exponentials, dtype), sums)
        factors = (1.0 / sums)[..., None]  # [B, N, P, 1]
        context_factors = tf.transpose(factors, [0, 2, 1, 3])  # [B, P, N, 1]
        context = tf.einsum("bnqk,bknd->bqnd", drop(exponentials), value)
        context = tf.cast(float32(context) * context_factors, dtype)

        def grad(dcontext) -> tuple[Tensor, Tensor, Tensor]:
            products = tf.reduce_sum(float32(dcontext) * float32(context), axis=-1)  # [B, P, N]
            products = tf.transpose(products, [0, 2, 1])[..., None]  # [B, N, P, 1]
            dprobs = drop(tf.einsum("bqnd,bknd->bnqk", dcontext, value))
            dscores = float32(exponentials) * (float32(dprobs) - products) * (scale * factors)
            dscores = tf.cast(dscores, dtype)
            dcontext = tf.cast(float32(dcontext) * context_factors, dtype)
            return (
                tf.einsum("bnqk,bknd->bqnd", dscores, key),
                tf.einsum("bnqk,bqnd->bknd", dscores, query),
                tf.einsum("bnqk,bqnd->bknd", drop(exponentials), dcontext),
            )

        return context, grad

    return function(query, key, value)
