# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What every part of the model is made of: named weights, matrix product, layer normalisation."""

from __future__ import annotations

import tensorflow as tf

LAYER_NORM_EPSILON = 1e-12


class WeightedLayer(tf.keras.layers.Layer):
    """A layer that creates its variables when it is made, under the TF1 release's names.

    Variables are float32 whatever the policy; `call` casts what it uses, once, to the compute type.

    Args:
      prefix: scope of the variables' names, such as "bert/pooler".
      initializer_range: standard deviation of the truncated normal initialiser of matrices.
      dtype: Keras precision policy; None means the global one.
    """

    def __init__(self, prefix: str, initializer_range: float = 0.02, dtype=None) -> None:
        super().__init__(name=prefix.replace("/", "_"), dtype=dtype, autocast=False)
        self._prefix = prefix
        self._initializer_range = initializer_range
        self._names: list[str] = []
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Variables by official name, in the order of creation."""
        return dict(zip(self._names, self.weights))

    def _variable(self, name: str, shape: list[int], initializer) -> tf.Variable:
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


def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x @ kernel + bias for a matrix x [rows, inputs], in x's type."""
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


@tf.custom_gradient
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Normalises the rows of x [rows, size]: biased variance, epsilon 1e-12, float32 throughout.

    Args:
      x: [rows, size] of any float type.
      gamma: float32 [size].
      beta: float32 [size].

    Returns:
      [rows, size] in the type of x.
    """
    x32 = tf.cast(x, tf.float32)
    mean = tf.reduce_mean(x32, axis=-1, keepdims=True)
    centred = x32 - mean
    variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
    normal = centred * scale

    def grad(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        dy32 = tf.cast(dy, tf.float32)
        product = dy32 * normal
        dnormal = dy32 * gamma
        mean_dnormal = tf.reduce_mean(dnormal, axis=-1, keepdims=True)
        mean_product = tf.reduce_mean(dnormal * normal, axis=-1, keepdims=True)
        dx = (dnormal - mean_dnormal - normal * mean_product) * scale
        return (
            tf.cast(dx, x.dtype),
            tf.reduce_sum(product, axis=0),
            tf.reduce_sum(dy32, axis=0),
        )

    return tf.cast(normal * gamma + beta, x.dtype), grad
