# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation of a sum, such as that of a residual connection, in one kernel each way."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.config import LAYER_NORM_EPSILON
from albert_tf.modeling.kernels.fusion import custom_gradient, fused, row_sums
from albert_tf.modeling.kernels.linear import column_sums, gradients_of_terms, sum_in_float32


def _row_mean(x: tf.Tensor) -> tf.Tensor:
    return row_sums(x) / x.shape[-1]


@fused
def _normalise(*tensors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Takes the terms of the input, gamma, beta; returns output, normalised rows, their scale."""
    *terms, gamma, beta = tensors
    dtype = terms[0].dtype
    x = sum_in_float32(*terms)
    centred = x - _row_mean(x)
    scale = tf.math.rsqrt(_row_mean(centred * centred) + LAYER_NORM_EPSILON)
    normal = centred * scale
    return tf.cast(normal * gamma + beta, dtype), tf.cast(normal, dtype), scale


@fused
def _gradient(
    normal: tf.Tensor, scale: tf.Tensor, gamma: tf.Tensor, dy: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradient of the rows, and dy * normal: its column sums are gamma's gradient."""
    dtype = normal.dtype
    normal, dy = tf.cast(normal, tf.float32), tf.cast(dy, tf.float32)
    dnormal = dy * gamma
    dx = (dnormal - _row_mean(dnormal) - normal * _row_mean(dnormal * normal)) * scale
    return tf.cast(dx, dtype), tf.cast(dy * normal, dtype)


def layer_norm(
    terms: Sequence[tf.Tensor], gamma: tf.Tensor, beta: tf.Tensor, training: bool = False
) -> tf.Tensor:
    """Normalises the rows of a sum: biased variance, epsilon 1e-12, in float32.

    Args:
      terms: the tensors to add up, of one float type. The first one is [..., size], the others have
        the same shape or, as a bias, [size].
      gamma: float32 [size].
      beta: float32 [size].
      training: whether a backward pass follows.

    Returns:
      [..., size] in the type of the terms.
    """

    @custom_gradient
    def function(*tensors: tf.Tensor) -> tf.Tensor:
        *terms, gamma, _ = tensors
        y, normal, scale = _normalise(*tensors, training=training)

        def grad(dy: tf.Tensor) -> list[tf.Tensor]:
            dx, products = _gradient(normal, scale, gamma, dy, training=training)
            # XLA's sums over rows would take as long as the rest of the gradient.
            dgamma, dbeta = (tf.cast(column_sums(z), gamma.dtype) for z in (products, dy))
            return [*gradients_of_terms(terms, dx), dgamma, dbeta]

        return y, grad

    return function(*terms, tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta))
