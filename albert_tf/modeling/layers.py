# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What every part of the model is made of: named weights, matrix product, layer normalisation."""

from __future__ import annotations

import functools
from typing import Any, Union

import tensorflow as tf

from albert_tf.config import LAYER_NORM_EPSILON
from albert_tf.keras2 import keras
from albert_tf.modeling.kernels.fusion import custom_gradient, fused

#: A Keras precision policy or its name; None means the global one.
Policy = Union[str, keras.mixed_precision.Policy, None]


class WeightedLayer(keras.layers.Layer):
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
        self, name: str, shape: list[int], initializer: str | keras.initializers.Initializer
    ) -> tf.Variable:
        full_name = f"{self._prefix}/{name}" if self._prefix else name
        self._names.append(full_name)
        # Autocast variables would be cast anew in every layer that shares them.
        return self.add_weight(
            full_name, shape, tf.float32, initializer, experimental_autocast=False
        )

    def matrix(self, name: str, shape: list[int]) -> tf.Variable:
        """Creates a truncated-normal matrix."""
        initializer = keras.initializers.TruncatedNormal(stddev=self._initializer_range)
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


@fused
def _sum_in_float32(*tensors: tf.Tensor) -> tf.Tensor:
    return functools.reduce(tf.add, [tf.cast(tensor, tf.float32) for tensor in tensors])


def shared(weight: tf.Tensor, dtype: tf.DType, uses: int) -> tuple[tf.Tensor, ...]:
    """Casts a float32 weight once, for `uses` layers that share it.

    The gradients of the layers are added up in float32 by one kernel. TensorFlow's own sum of them
    would be rounded to `dtype` and take four times as long in bfloat16.
    """

    @custom_gradient
    def function(weight: tf.Tensor) -> Any:
        cast = tf.cast(weight, dtype)
        grad = functools.partial(_sum_in_float32, training=True)
        return [tf.identity(cast) for _ in range(uses)], grad

    return tuple(function(tf.convert_to_tensor(weight)))


def _column_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the rows of x; as a product it adds up in float32 whatever the type of x."""
    return tf.matmul(tf.ones([1, tf.shape(x)[0]], x.dtype), x)[0]


@custom_gradient
def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x @ kernel + bias for a matrix x [rows, inputs]; all three of one type."""

    def grad(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return (
            tf.matmul(dy, kernel, transpose_b=True),
            tf.matmul(x, dy, transpose_a=True),
            _column_sums(dy),
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
def _layer_norm_products(
    normal: tf.Tensor, scale: tf.Tensor, gamma: tf.Tensor, dy: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradient of the rows, and dy * normal, whose column sums are that of gamma."""
    dtype = normal.dtype
    normal, dy = tf.cast(normal, tf.float32), tf.cast(dy, tf.float32)
    dnormal = dy * gamma
    dx = (dnormal - _row_mean(dnormal) - normal * _row_mean(dnormal * normal)) * scale
    return tf.cast(dx, dtype), tf.cast(dy * normal, dtype)


def _layer_norm_gradient(
    normal: tf.Tensor, scale: tf.Tensor, gamma: tf.Tensor, dy: tf.Tensor, training: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    # XLA's sums over rows take as long as the rest of the gradient.
    dx, products = _layer_norm_products(normal, scale, gamma, dy, training=training)
    dgamma, dbeta = (tf.cast(_column_sums(x), gamma.dtype) for x in (products, dy))
    return dx, dgamma, dbeta


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

    @custom_gradient
    def plain(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        y, normal, scale = _layer_norm(x, gamma, beta, training=training)
        return y, lambda dy: _layer_norm_gradient(normal, scale, gamma, dy, training=training)

    @custom_gradient
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
