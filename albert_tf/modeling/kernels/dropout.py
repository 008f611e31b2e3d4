# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dropout whose masks are a pure function of a seed, so that a resumed run repeats them exactly."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.modeling.kernels.dense import affine, affine_terms
from albert_tf.modeling.kernels.graph_mode import (
    GraphMode,
    cpu_kernel,
    current_mode,
    current_step,
    own_gradient,
)


def _next_seed() -> Tensor:
    """Returns the next int32 [2] seed of the training step; outside of one a random seed."""
    step = current_step()
    if step is None:
        return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    seed = tf.random.experimental.stateless_fold_in(step.seed, step.masks)
    step.masks += 1
    return seed


def _hashed_bits(count: Tensor, seed: Tensor) -> Tensor:
    """Returns `count` (int64) random uint32 values, which repeat after 2^32.

    Hashes 0 .. count - 1 with a multiply-xorshift hash (constants: C. Wellons, "lowbias32") keyed
    with both halves of the seed. Compiled by XLA this takes a tenth of the time of the
    counter-based generators behind tf.random, which would be a third of a training step.
    """
    xor = tf.bitwise.bitwise_xor

    def fold(bits, shift) -> Tensor:
        return xor(bits, tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint32)))

    def mix(bits, key) -> Tensor:
        bits = xor(fold(bits, 16) * tf.constant(0x7FEB352D, tf.uint32), key)
        return fold(fold(bits, 15) * tf.constant(0x846CA68B, tf.uint32), 16)

    first, second = tf.unstack(tf.bitcast(seed, tf.uint32))
    # Seeds that differ in few bits must not give related streams: hash them first.
    offset = mix(first, mix(second, tf.constant(1, tf.uint32)))
    key = mix(offset, second)
    step = tf.constant(0x9E3779B9, tf.uint32)
    return mix(tf.cast(tf.range(count), tf.uint32) * step + offset, key)


@cpu_kernel
def _drop(x: Tensor, seed: Tensor, threshold: Tensor, scale: Tensor) -> Tensor:
    if current_mode() is GraphMode.CPU or current_mode().is_compiled:
        bits = tf.reshape(_hashed_bits(tf.size(x, tf.int64), seed), tf.shape(x))
    else:
        # Otherwise the graph optimizer would merge this with the backward pass and keep the values.
        with tf.control_dependencies([x]):
            bits = tf.random.stateless_uniform(tf.shape(x), seed, None, None, dtype=tf.uint32)
    return tf.cast(tf.where(bits >= threshold, tf.cast(x, tf.float32) * scale, 0.0), x.dtype)


def dropout_function(rate: float, training: bool) -> Callable[[Tensor], Tensor]:
    """Draws a mask; returns a function that applies it, which is also its own gradient function.

    Call it inside of `own_gradient` only, with tensors of one shape. It returns its argument when
    not training or when the rate is 0.
    """
    if not training or not rate:
        return lambda x: x
    threshold = tf.constant(round(rate * 2**32), tf.uint32)
    scale = tf.constant(1.0 / (1.0 - rate), tf.float32)
    seed = _next_seed()
    return lambda x: _drop(x, seed, threshold, scale)


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Zeroes elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    With hand-written gradients, the backward pass draws the mask again from its seed instead of
    keeping it. Returns `x` itself when not training or when the rate is 0.
    """
    if not training or not rate:
        return x
    drop = dropout_function(rate, training)
    return own_gradient(lambda x: (drop(x), drop))(x)


def affine_terms_with_dropout(
    x: Tensor, kernel: Tensor, bias: Tensor, rate: float, training: bool
) -> list[Tensor]:
    """Like `affine_terms`, with `dropout` of the sum."""
    if training and rate:
        return [dropout(affine(x, kernel, bias), rate, training)]
    return affine_terms(x, kernel, bias)
