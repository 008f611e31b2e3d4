# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Recomputation: the backward pass computes inner values of layers again, keeping none of them."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from albert_tf.modeling.kernels.dropout import dropout_position, dropout_seed
from albert_tf.modeling.kernels.fusion import fused

_wanted = contextvars.ContextVar("recomputation", default=False)


@contextlib.contextmanager
def recomputation(wanted: bool = True) -> Iterator[None]:
    """What is traced inside keeps of each transformer layer the output alone, if `wanted`.

    Enter it and `dropout_seed` around the forward pass. Losses and gradients stay the same; the
    price is one more forward pass a step (Chen et al., 2016, "Training Deep Nets with Sublinear
    Memory Cost").
    """
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def recomputes() -> bool:
    """Whether what is traced now is inside `recomputation`."""
    return _wanted.get()


@fused
def _add(total: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    return tf.cast(total, tf.float32) + tf.cast(gradient, tf.float32)


def recomputed(
    function: Callable[..., tf.Tensor], x: tf.Tensor, *weights: tuple[tf.Tensor, ...]
) -> tuple[Any, ...]:
    """Returns function(x, *weights), inside `recomputation` without keeping what it computes.

    Hand the weights that are returned to the next function that shares them: their gradients are
    then added up in float32, one function after the other. Taken from one place, the gradients of
    all functions would wait for each other, which for a model with large layers is most of the
    memory.

    Args:
      function: computes one tensor. It may draw dropout and read variables; gradients flow to
        these and to its arguments, and to no other tensor.
      x: [rows, size], the input whose gradient comes last.
      *weights: structures of tensors.

    Returns:
      The result, and each of `weights` for the next function.

    Raises:
      ValueError: there is no `dropout_seed` inside which the same masks can be drawn again.
    """
    if not recomputes():
        return function(x, *weights), *weights
    position = dropout_position()

    def compute(x: tf.Tensor, *flat: tf.Tensor) -> tf.Tensor:
        return function(x, *tf.nest.pack_sequence_as(weights, flat))

    @tf.custom_gradient
    def run(x: tf.Tensor, *flat: tf.Tensor) -> Any:
        def grad(dy: tf.Tensor, *totals: tf.Tensor, variables: list[tf.Variable] = ()) -> Any:
            # What is computed again must need dy: it would run beside the first pass otherwise, or
            # be found to be the same and be kept. XLA knows no control dependencies, hence a sum.
            sources = [x + 0 * dy[:1, :1], *flat, *variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                with dropout_seed(*position):
                    y = compute(*sources[: 1 + len(flat)])
            dx, *rest = tape.gradient(y, sources, dy)
            dflat = [_add(*pair, training=True) for pair in zip(totals, rest)]
            dvariables = rest[len(flat) :]
            # Else the next layer may come first, while this one's inner values wait for their use.
            with tf.control_dependencies([*dflat, *dvariables]):
                dx = tf.identity(dx)
            return ([dx, *dflat], dvariables) if variables else [dx, *dflat]

        return (compute(x, *flat), *flat), grad

    y, *flat = run(x, *tf.nest.flatten(weights))
    return y, *tf.nest.pack_sequence_as(weights, flat)
