# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cross entropy over a vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.modeling.kernels.dense import fused_sum
from albert_tf.modeling.kernels.graph_mode import GraphMode, cpu_kernel, current_mode, own_gradient


def cross_entropy(products: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the negative log probability of each label, and whether it is the most probable one.

    The logits are products + bias, in float32. If several classes share the highest logit, the
    first of them is the most probable one, as for `tf.argmax`. TensorFlow's own kernel, which GPUs
    use, runs in one thread on CPUs.

    Takes [rows, classes] of any float type, float32 [classes] and int32 [rows]; returns losses,
    float32 [rows], and bool [rows].
    """
    if current_mode() is GraphMode.CPU:
        return _from_exponentials(products, bias, labels)
    logits = tf.nn.bias_add(tf.cast(products, tf.float32), bias)
    if current_mode().is_compiled:
        losses = _from_logits(logits, labels)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    # TensorFlow compares int32 on the CPU, even if the rest of the graph runs on a GPU.
    return losses, tf.argmax(logits, axis=1) == tf.cast(labels, tf.int64)


def _from_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the losses; keeps only the logits for the backward pass."""
    is_label = tf.range(tf.shape(logits)[1]) == labels[:, None]

    @own_gradient
    def function(logits) -> tuple[Tensor, Callable[..., Tensor]]:
        log_sum = tf.reduce_logsumexp(logits, axis=1, keepdims=True)
        if current_mode() is GraphMode.TPU:
            # To gather from the logits the compiler would store them in float32.
            label_logits = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=1)
        else:
            label_logits = tf.gather(logits, labels, batch_dims=1)

        def grad(dlosses) -> Tensor:
            return (tf.exp(logits - log_sum) - tf.cast(is_label, tf.float32)) * dlosses[:, None]

        return log_sum[:, 0] - label_logits, grad

    return function(logits)


@cpu_kernel
def _exponentials(logits: Tensor, maxima: Tensor) -> Tensor:
    return tf.exp(logits - maxima)


@cpu_kernel
def _scale_rows(x: Tensor, factors: Tensor, like: Tensor) -> Tensor:
    """Multiplies each row by its factor; returns the type of `like`."""
    return tf.cast(x * factors, like.dtype)


def _from_exponentials(products: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the exponentials once, for both passes; see `cross_entropy`."""
    rows = tf.range(tf.shape(labels)[0], dtype=labels.dtype)
    indices = tf.stack([rows, labels], axis=1)

    @own_gradient
    def function(products, bias) -> tuple[Tensor, Tensor]:
        logits = fused_sum(products, bias)
        maxima = tf.reduce_max(logits, axis=1, keepdims=True)
        label_logits = tf.gather(logits, labels, batch_dims=1)
        exponentials = _exponentials(logits, maxima)
        sums = tf.matmul(exponentials, tf.ones([tf.shape(logits)[1], 1]))  # [rows, 1]
        losses = tf.math.log(sums[:, 0]) + maxima[:, 0] - label_logits

        def grad(dlosses, _) -> tuple[Tensor, Tensor]:
            # The gradient of the logits is (exponentials / sums - one-hot labels) * dlosses.
            factors = dlosses[:, None] / sums
            dproducts = _scale_rows(exponentials, factors, tf.zeros([], products.dtype))
            at_labels = tf.cast(tf.math.expm1(-losses) * dlosses, products.dtype)
            dproducts = tf.tensor_scatter_nd_update(dproducts, indices, at_labels)
            dbias = tf.matmul(factors, exponentials, transpose_a=True)[0]
            return dproducts, tf.tensor_scatter_nd_sub(dbias, labels[:, None], dlosses)

        # Only these rows can be right: `tf.argmax` takes several times as long as a maximum.
        highest = tf.where(label_logits >= maxima[:, 0])
        right = tf.argmax(tf.gather_nd(logits, highest), axis=1, output_type=labels.dtype)
        right = right == tf.gather_nd(labels, highest)
        right = tf.scatter_nd(highest, right, tf.shape(labels, tf.int64))
        return (losses, right), grad

    return function(products, bias)
