# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dense products, and weights that several layers share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from albert_tf.modeling.kernels.fusion import custom_gradient, fused
from albert_tf.modeling.kernels.graph_mode import current_mode


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums all axes but the last one; accumulates in float32 whatever the type."""
    if x.shape.rank > 2:
        sums = tf.reduce_sum(tf.cast(x, tf.float32), axis=list(range(x.shape.rank - 1)))
        return tf.cast(sums, x.dtype)
    # As a product this is faster than a sum, and needs no float32.
    return tf.matmul(tf.ones([1, tf.shape(x)[0]], x.dtype), x)[0]


def product_gradients(
    x: tf.Tensor, kernel: tf.Tensor, dy: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradients of x and kernel, both matrices, from that of their product."""
    return tf.matmul(dy, kernel, transpose_b=True), tf.matmul(x, dy, transpose_a=True)


@custom_gradient
def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x @ kernel + bias; all three of one type.

    Args:
      x: [rows, inputs], or on a TPU [B, S, inputs].
      kernel: [inputs, outputs].
      bias: [outputs].
    """
    if x.shape.rank > 2:

        def grad_of_rows(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return (
                tf.einsum("bso,io->bsi", dy, kernel),
                tf.einsum("bsi,bso->io", x, dy),
                column_sums(dy),
            )

        return tf.einsum("bsi,io->bso", x, kernel) + bias, grad_of_rows

    def grad(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return *product_gradients(x, kernel, dy), column_sums(dy)

    return tf.nn.bias_add(tf.matmul(x, kernel), bias), grad


def affine_terms(
    x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, training: bool = False
) -> list[tf.Tensor]:
    """Returns one or two tensors that add up to x @ kernel + bias.

    Where `GraphMode.fuses`, these are the product and the bias, and the compiled kernel that
    follows adds them at no cost. In oneDNN, a product with a bias can take twice as long as one
    without.

    Args:
      x: [rows, inputs], or on a TPU [B, S, inputs].
      kernel: [inputs, outputs] of the same type.
      bias: [outputs] of the same type.
      training: whether a backward pass follows.

    Returns:
      Either [x @ kernel + bias] or [x @ kernel, bias], all of the type of x.
    """
    if not current_mode().fuses(training):
        return [affine(x, kernel, bias)]

    @custom_gradient
    def product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, kernel), lambda dy: product_gradients(x, kernel, dy)

    return [product(x, kernel), bias]


def sum_in_float32(*terms: tf.Tensor) -> tf.Tensor:
    """Adds tensors of any float types."""
    return functools.reduce(tf.add, [tf.cast(term, tf.float32) for term in terms])


def gradients_of_terms(terms: Sequence[tf.Tensor], dy: tf.Tensor) -> list[tf.Tensor]:
    """Returns the gradient of each term from that of their sum, added up over rows for a bias."""
    return [dy if term.shape.rank == dy.shape.rank else column_sums(dy) for term in terms]


#: `sum_in_float32` as one kernel; takes `training`, too.
fused_sum = fused(sum_in_float32)


def shared(weights: Sequence[tf.Tensor], dtype: tf.DType, uses: int) -> list[tuple[tf.Tensor, ...]]:
    """Casts weights once, and returns a copy of all for each of the `uses` layers.

    One kernel adds up the gradients of the layers in float32. TensorFlow's own sum would be rounded
    to `dtype` and take four times as long in bfloat16.
    """

    @custom_gradient
    def copies(weight: tf.Tensor) -> Any:
        cast = tf.cast(weight, dtype)
        grad = functools.partial(fused_sum, training=True)
        return [tf.identity(cast) for _ in range(uses)], grad

    return list(zip(*(copies(tf.convert_to_tensor(weight)) for weight in weights)))
