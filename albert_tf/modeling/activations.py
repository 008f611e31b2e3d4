# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Activation functions by their configuration name."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


@tf.custom_gradient
def gelu(x: tf.Tensor) -> tf.Tensor:
    """Gaussian error linear unit in the tanh approximation, as the TF1 release has it."""

    def grad(dy: tf.Tensor) -> tf.Tensor:
        square = x * x
        t = tf.tanh(x * (_SCALE + (_SCALE * _CUBIC) * square))
        slope = x * (_SCALE + (3.0 * _SCALE * _CUBIC) * square)
        return dy * (0.5 + 0.5 * t + 0.5 * slope * (1.0 - t * t))

    return 0.5 * x * (1.0 + tf.tanh(x * (_SCALE + (_SCALE * _CUBIC) * (x * x)))), grad


_FUNCTIONS = {"gelu": gelu, "relu": tf.nn.relu, "tanh": tf.tanh, "linear": tf.identity}


def get_activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function that `AlbertConfig.hidden_act` names."""
    return _FUNCTIONS[name]
