# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What every part of the model is made of: named weights, matrix product, layer normalisation."""

from __future__ import annotations

from typing import Union

import tensorflow as tf

from albert_tf.modeling.fusion import fused, own_gradient

LAYER_NORM_EPSILON = 1e-12

#: A Keras precision policy or its name; None means the global one.
Policy = Union[str, tf.keras.mixed_precision.Policy, None]


class WeightedLayer(tf.keras.layers.Layer):
    """A layer that creates its variables when it is made, under the TF1 release's names.

    Variables are float32 whatever the policy; `call` casts what it uses, once, to the compute type.

    Args:
      prefix: scope of the variables' names, such as "bert/pooler".
      initializer_range: standard deviation of the truncated normal initialiser of matrices.
      dtype: Keras precision policy; None means the global one.
    """

    def __init__(self, prefix: str, initializer_range: float = 0.02, dtype: Policy = None) -> None:
        super().__init__(name=prefix.replace("/", "_"), dtype=dtype, autocast=False)
        self._prefix = prefix
        self._initializer_range = initializer_range
        self._names: list[str] = []
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Variables by official name, in the order of creation."""
        return dict(zip(self._names, self.weights))

    def _variable(
        self, name: str, shape: list[int], initializer: str | tf.keras.initializers.Initializer
    ) -> tf.Variable:
        full_name = f"{self._prefix}/{name}" if self._prefix else name
        self._names.append(full_name)
        # Autocast variables would be cast anew in every layer that shares them.
        return self.add_weight(
            full_name, shape, tf.float32, initializer, experimental_autocast=False
        )

    def matrix(self, name: str, shape: list[int]) -> tf.Variable:
        """Creates a truncated-normal matrix."""
        initializer = tf.keras.initializers.TruncatedNormal(stddev=self._initializer_range)
        return self._variable(name, shape, initializer)

    def vector(self, name: str, size: int, value: str = "zeros") -> tf.Variable:
        """Creates a vector of zeros or ones."""
        return self._variable(name, [size], value)

    def dense(self, name: str, inputs: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
        """Creates the kernel [inputs, outputs] and the bias [outputs] of a dense layer."""
        return self.matrix(f"{name}/kernel", [inputs, outputs]), self.vector(
            f"{name}/bias", outputs
        )

    def norm(self, name: str, size: int) -> tuple[tf.Variable, tf.Variable]:
        """Creates gamma and beta [size] of a layer normalisation; returned in this order."""
        beta = self.vector(f"{name}/beta", size)
        return self.vector(f"{name}/gamma", size, "ones"), beta


@own_gradient
def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x @ kernel + bias for a matrix x [rows, inputs]; all three of one type."""

    def grad(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # As a product, the sum over the rows is accumulated in float32 whatever the type of dy.
        ones = tf.ones([1, tf.shape(dy)[0]], dy.dtype)
        return (
            tf.matmul(dy, kernel, transpose_b=True),
            tf.matmul(x, dy, transpose_a=True),
            tf.matmul(ones, dy)[0],
        )

    return tf.nn.bias_add(tf.matmul(x, kernel), bias), grad


def _row_mean(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(x, axis=-1, keepdims=True)


def _normalise(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, ...]:
    centred = x - _row_mean(x)
    scale = tf.math.rsqrt(_row_mean(centred * centred) + LAYER_NORM_EPSILON)
    normal = centred * scale
    return normal * gamma + beta, normal, scale


@fused
def _layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, ...]:
    y, normal, scale = _normalise(tf.cast(x, tf.float32), gamma, beta)
    return tf.cast(y, x.dtype), tf.cast(normal, x.dtype), scale


@fused
def _residual_layer_norm(
    x: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    total = tf.cast(x, tf.float32) + tf.cast(residual, tf.float32)
    y, normal, scale = _normalise(total, gamma, beta)
    return tf.cast(y, x.dtype), tf.cast(normal, x.dtype), scale


@fused
def _layer_norm_gradient(
    normal: tf.Tensor, scale: tf.Tensor, gamma: tf.Tensor, dy: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    dtype = normal.dtype
    normal, dy = tf.cast(normal, tf.float32), tf.cast(dy, tf.float32)
    dnormal = dy * gamma
    dx = (dnormal - _row_mean(dnormal) - normal * _row_mean(dnormal * normal)) * scale
    return tf.cast(dx, dtype), tf.reduce_sum(dy * normal, axis=0), tf.reduce_sum(dy, axis=0)


def layer_norm(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    residual: tf.Tensor | None = None,
    training: bool = False,
) -> tf.Tensor:
    """Normalises the rows of x, or of x + residual: biased variance, epsilon 1e-12, in float32.

    Args:
      x: [rows, size] of any float type.
      gamma: float32 [size].
      beta: float32 [size].
      residual: as x, or None.
      training: whether a backward pass follows.

    Returns:
      [rows, size] in the type of x.
    """

    @own_gradient
    def plain(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        y, normal, scale = _layer_norm(x, gamma, beta, training=training)
        return y, lambda dy: _layer_norm_gradient(normal, scale, gamma, dy, training=training)

    @own_gradient
    def with_residual(
        x: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> tf.Tensor:
        y, normal, scale = _residual_layer_norm(x, residual, gamma, beta, training=training)

        def grad(dy: tf.Tensor) -> tuple[tf.Tensor, ...]:
            dx, dgamma, dbeta = _layer_norm_gradient(normal, scale, gamma, dy, training=training)
            return dx, dx, dgamma, dbeta

        return y, grad

    gamma, beta = tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta)
    if residual is None:
        return plain(x, gamma, beta)
    return with_residual(x, residual, gamma, beta)
