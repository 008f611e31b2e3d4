# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dense products and what follows them: the activation, or layer normalisation of a sum.

These functions take a sum as its terms: in the mode CPU, the bias of a product is added by the
compiled kernel that follows, because a product with a bias can take oneDNN twice as long.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.config import LAYER_NORM_EPSILON
from albert_tf.modeling.kernels.graph_mode import (
    GraphMode,
    cpu_kernel,
    current_mode,
    own_gradient,
    row_sums,
)


def column_sums(x: Tensor) -> Tensor:
    """Sums all axes but the last one; accumulates in float32 whatever the type."""
    if x.shape.rank > 2:
        sums = tf.reduce_sum(tf.cast(x, tf.float32), axis=list(range(x.shape.rank - 1)))
        return tf.cast(sums, x.dtype)
    # As a product this is faster than a sum, and needs no float32.
    return tf.matmul(tf.ones([1, tf.shape(x)[0]], x.dtype), x)[0]


@own_gradient
def _product(x: Tensor, kernel: Tensor) -> Tensor:
    def grad(dy) -> tuple[Tensor, Tensor]:
        return tf.matmul(dy, kernel, transpose_b=True), tf.matmul(x, dy, transpose_a=True)

    return tf.matmul(x, kernel), grad


@own_gradient
def affine(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Returns x @ kernel + bias, all three of one type.

    They are [rows, inputs], or in the mode TPU [B, S, inputs]; [inputs, outputs]; and [outputs].
    """

    def grad(dy) -> tuple[Tensor, Tensor, Tensor]:
        if x.shape.rank > 2:
            dx = tf.einsum("bso,io->bsi", dy, kernel)
            return dx, tf.einsum("bsi,bso->io", x, dy), column_sums(dy)
        dx = tf.matmul(dy, kernel, transpose_b=True)
        return dx, tf.matmul(x, dy, transpose_a=True), column_sums(dy)

    if x.shape.rank > 2:
        return tf.einsum("bsi,io->bso", x, kernel) + bias, grad
    return tf.nn.bias_add(tf.matmul(x, kernel), bias), grad


def affine_terms(x: Tensor, kernel: Tensor, bias: Tensor) -> list[Tensor]:
    """Returns `affine` of the arguments as one or, in the mode CPU, two terms of a sum."""
    if current_mode() is GraphMode.CPU:
        return [_product(x, kernel), bias]
    return [affine(x, kernel, bias)]


def sum_in_float32(*terms: Tensor) -> Tensor:
    """Adds tensors of any float types."""
    return functools.reduce(tf.add, [tf.cast(term, tf.float32) for term in terms])


#: `sum_in_float32` as one kernel.
fused_sum = cpu_kernel(sum_in_float32)


def gradients_of_terms(terms: Sequence[Tensor], dy: Tensor) -> list[Tensor]:
    """Returns the gradient of each term from that of their sum, added up over rows for a bias."""
    return [dy if term.shape.rank == dy.shape.rank else column_sums(dy) for term in terms]


def cast_for_layers(weights: Any, dtype: tf.DType, uses: int) -> list[Any]:
    """Returns a copy of weights in a compute type for each of the `uses` layers that share them.

    The gradients of the layers are added up in float32, elsewhere than in the mode PLAIN by one
    kernel: TensorFlow's own sum would take four times as long in bfloat16. `weights` is a structure
    of float32 tensors or variables.
    """
    if current_mode() is GraphMode.PLAIN:
        return [tf.nest.map_structure(lambda w: tf.cast(w, dtype), weights) for _ in range(uses)]

    @own_gradient
    def copies(weight) -> Any:
        cast = tf.cast(weight, dtype)
        return [tf.identity(cast) for _ in range(uses)], fused_sum

    flat = [copies(tf.convert_to_tensor(weight)) for weight in tf.nest.flatten(weights)]
    return [tf.nest.pack_sequence_as(weights, copy) for copy in zip(*flat)]


def _row_mean(x: Tensor) -> Tensor:
    return row_sums(x) / x.shape[-1]


@cpu_kernel
def _normalise(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Takes the terms of the input, gamma, beta; returns output, normalised rows, their scale."""
    *terms, gamma, beta = tensors
    dtype = terms[0].dtype
    x = sum_in_float32(*terms)
    centred = x - _row_mean(x)
    scale = tf.math.rsqrt(_row_mean(centred * centred) + LAYER_NORM_EPSILON)
    normal = centred * scale
    return tf.cast(normal * gamma + beta, dtype), tf.cast(normal, dtype), scale


@cpu_kernel
def _normalise_gradient(
    normal: Tensor, scale: Tensor, gamma: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the gradient of the rows, and dy * normal: its column sums are gamma's gradient."""
    dtype = normal.dtype
    normal, dy = tf.cast(normal, tf.float32), tf.cast(dy, tf.float32)
    dnormal = dy * gamma
    dx = (dnormal - _row_mean(dnormal) - normal * _row_mean(dnormal * normal)) * scale
    return tf.cast(dx, dtype), tf.cast(dy * normal, dtype)


def layer_norm(terms: Sequence[Tensor], gamma: Tensor, beta: Tensor) -> Tensor:
    """Normalises the rows of a sum: biased variance, epsilon 1e-12, in float32.

    The terms are of one float type, the first one [..., size], the others like it or, as a bias,
    [size]. gamma and beta are float32 [size]. Returns [..., size] in the type of the terms.
    """

    @own_gradient
    def function(*tensors) -> Tensor:
        *terms, gamma, _ = tensors
        y, normal, scale = _normalise(*tensors)

        def grad(dy) -> list[Tensor]:
            dx, products = _normalise_gradient(normal, scale, gamma, dy)
            # XLA's sums over rows would take as long as the rest of the gradient.
            dgamma, dbeta = (tf.cast(column_sums(z), gamma.dtype) for z in (products, dy))
            return [*gradients_of_terms(terms, dx), dgamma, dbeta]

        return y, grad

    return function(*terms, tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta))


_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


def _add(terms: Sequence[Tensor]) -> Tensor:
    return functools.reduce(tf.nn.bias_add, terms)


@cpu_kernel
def _gelu(*terms: Tensor) -> Tensor:
    z = sum_in_float32(*terms)
    t = tf.tanh(z * (_SCALE + (_SCALE * _CUBIC) * (z * z)))
    # Not 0.5 * z: TensorFlow Lite's converter would turn it into a second product with halved
    # weights.
    return tf.cast(z * (0.5 * (1.0 + t)), terms[0].dtype)


@cpu_kernel
def _gelu_gradient(dy: Tensor, *terms: Tensor) -> Tensor:
    z = sum_in_float32(*terms)
    square = z * z
    t = tf.tanh(z * (_SCALE + (_SCALE * _CUBIC) * square))
    slope = z * (_SCALE + (3.0 * _SCALE * _CUBIC) * square)
    return tf.cast(tf.cast(dy, tf.float32) * 0.5 * (1.0 + t + slope * (1.0 - t * t)), dy.dtype)


def _served_gelu(x: Tensor) -> Tensor:
    """Like `_gelu`, in the one form that TensorFlow's graph optimizer fuses into a product.

    Computes in the type of x, because a cast would prevent the fusion. The fused product computes
    in float32 inside.

    Source: FindMatMulBiasAddAndGelu in tensorflow/core/grappler/optimizers/remapper.cc, which looks
    for this form after constants were moved.
    """
    t = tf.tanh((x + (_CUBIC * tf.square(x)) * x) * _SCALE)
    return (0.5 * x) * (t + 1.0)


def gelu(terms: Sequence[Tensor]) -> Tensor:
    """Returns the Gaussian error linear unit in the tanh approximation, as the TF1 release does.

    Computes in float32 (in the mode SERVED: see `_served_gelu`) and returns the type of the terms,
    which add up to the argument, see `affine_terms`.
    """
    if current_mode() is GraphMode.SERVED:
        return _served_gelu(_add(terms))

    @own_gradient
    def function(*terms) -> Tensor:
        return _gelu(*terms), lambda dy: gradients_of_terms(terms, _gelu_gradient(dy, *terms))

    return function(*terms)


#: Functions of a sum, given by its terms, by the names that `AlbertConfig.hidden_act` has.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": lambda terms: tf.nn.gelu(_add(terms), approximate=False),
    "relu": lambda terms: tf.nn.relu(_add(terms)),
    "tanh": lambda terms: tf.tanh(_add(terms)),
    "linear": _add,
}
