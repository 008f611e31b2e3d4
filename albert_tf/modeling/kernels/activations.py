# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Activation functions by their configuration name."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf.modeling.kernels.fusion import custom_gradient, fused
from albert_tf.modeling.kernels.graph_mode import current_mode
from albert_tf.modeling.kernels.linear import gradients_of_terms, sum_in_float32

_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715

#: A function of a sum, given by its terms (see `affine_terms`), and of `training`.
Activation = Callable[[Sequence[tf.Tensor], bool], tf.Tensor]


def _add(terms: Sequence[tf.Tensor]) -> tf.Tensor:
    return functools.reduce(tf.nn.bias_add, terms)


@fused
def _gelu(*terms: tf.Tensor) -> tf.Tensor:
    z = sum_in_float32(*terms)
    t = tf.tanh(z * (_SCALE + (_SCALE * _CUBIC) * (z * z)))
    # Not 0.5 * z: TensorFlow Lite's converter would turn it into a second product with halved
    # weights.
    return tf.cast(z * (0.5 * (1.0 + t)), terms[0].dtype)


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
def _gelu_gradient(dy: tf.Tensor, *terms: tf.Tensor) -> tf.Tensor:
    z = sum_in_float32(*terms)
    square = z * z
    t = tf.tanh(z * (_SCALE + (_SCALE * _CUBIC) * square))
    slope = z * (_SCALE + (3.0 * _SCALE * _CUBIC) * square)
    return tf.cast(tf.cast(dy, tf.float32) * 0.5 * (1.0 + t + slope * (1.0 - t * t)), dy.dtype)


def gelu(terms: Sequence[tf.Tensor], training: bool = False) -> tf.Tensor:
    """Returns the Gaussian error linear unit in the tanh approximation, as the TF1 release does.

    Computes in float32 (if `GraphMode.served`: in the type of the terms, see `_gelu_to_fuse`) and
    returns the type of the terms. Keeps only the terms for the backward pass.

    Args:
      terms: tensors that add up to the argument, see `affine_terms`.
      training: whether a backward pass follows.
    """
    if current_mode().served:
        return _gelu_to_fuse(_add(terms))

    @custom_gradient
    def function(*terms: tf.Tensor) -> tf.Tensor:
        def grad(dy: tf.Tensor) -> list[tf.Tensor]:
            return gradients_of_terms(terms, _gelu_gradient(dy, *terms, training=training))

        return _gelu(*terms, training=training), grad

    return function(*terms)


def _of_sum(function: Callable[[tf.Tensor], tf.Tensor]) -> Activation:
    return lambda terms, training: function(_add(terms))


_FUNCTIONS: dict[str, Activation] = {
    "gelu": gelu,
    "gelu_erf": _of_sum(lambda x: tf.nn.gelu(x, approximate=False)),
    "relu": _of_sum(tf.nn.relu),
    "tanh": _of_sum(tf.tanh),
    "linear": _of_sum(tf.identity),
}


def get_activation(name: str) -> Activation:
    """Returns the function that `AlbertConfig.hidden_act` names."""
    return _FUNCTIONS[name]
