# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Activation functions by their configuration name."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from albert_tf.modeling.kernels.fusion import custom_gradient, fused
from albert_tf.modeling.kernels.graph_mode import current_mode

_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715

#: A function of a tensor and of `training`.
Activation = Callable[[tf.Tensor, bool], tf.Tensor]


@fused
def _gelu(x: tf.Tensor) -> tf.Tensor:
    z = tf.cast(x, tf.float32)
    t = tf.tanh(z * (_SCALE + (_SCALE * _CUBIC) * (z * z)))
    # Not 0.5 * z: TensorFlow Lite's converter would turn it into a second product with halved
    # weights.
    return tf.cast(z * (0.5 * (1.0 + t)), x.dtype)


def _gelu_to_fuse(x: tf.Tensor) -> tf.Tensor:
    """Like `_gelu`, in the one form that TensorFlow's graph optimizer fuses into a product.

    Computes in the type of x, because a cast would prevent the fusion. The fused product computes
    in float32 inside.

    Source: FindMatMulBiasAddAndGelu in tensorflow/core/grappler/optimizers/remapper.cc, which looks
    for this form after constants were moved.
    """
    t = tf.tanh((x + (_CUBIC * tf.square(x)) * x) * _SCALE)
    return (0.5 * x) * (t + 1.0)


@fused
def _gelu_gradient(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    z = tf.cast(x, tf.float32)
    square = z * z
    t = tf.tanh(z * (_SCALE + (_SCALE * _CUBIC) * square))
    slope = z * (_SCALE + (3.0 * _SCALE * _CUBIC) * square)
    return tf.cast(tf.cast(dy, tf.float32) * 0.5 * (1.0 + t + slope * (1.0 - t * t)), x.dtype)


def gelu(x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Returns the Gaussian error linear unit in the tanh approximation, as the TF1 release does.

    Computes in float32 (if `GraphMode.served`: in the type of x, see `_gelu_to_fuse`) and returns
    the type of x. Keeps only x for the backward pass.
    """
    if current_mode().served:
        return _gelu_to_fuse(x)

    @custom_gradient
    def function(x: tf.Tensor) -> tf.Tensor:
        return _gelu(x, training=training), lambda dy: _gelu_gradient(x, dy, training=training)

    return function(x)


_FUNCTIONS: dict[str, Activation] = {
    "gelu": gelu,
    "gelu_erf": lambda x, training: tf.nn.gelu(x, approximate=False),
    "relu": lambda x, training: tf.nn.relu(x),
    "tanh": lambda x, training: tf.tanh(x),
    "linear": lambda x, training: x,
}


def get_activation(name: str) -> Activation:
    """Returns the function that `AlbertConfig.hidden_act` names."""
    return _FUNCTIONS[name]
