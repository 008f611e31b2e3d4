# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Recomputation: the backward pass computes inner values again instead of keeping them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.modeling.kernels.dense import fused_sum
from albert_tf.modeling.kernels.graph_mode import current_step, own_gradient, training_step


def recomputes() -> bool:
    """Returns whether the training step recomputes; see TrainingStep."""
    step = current_step()
    return step is not None and step.recompute


def recomputed(function: Callable[..., Tensor], x: Tensor, *weights: Any) -> tuple[Any, ...]:
    """Returns function(x, *weights), without keeping inner values if the step `recomputes`.

    Pass the returned weights to the next function that shares them: their gradients are then added
    up in float32, one function after the other. If all functions took the weights from one place,
    their gradients would wait for each other, which for large layers is most of the memory.

    The function computes one tensor of x, which has two or more dimensions and whose gradient comes
    last, and of structures of tensors. It may use dropout and read variables; gradients flow to
    these and to its arguments, but to no other tensor. Returns the result, and each of `weights`
    for the next function.
    """
    if not recomputes():
        return function(x, *weights), *weights
    before = dataclasses.replace(current_step())

    def compute(x, *flat) -> Tensor:
        return function(x, *tf.nest.pack_sequence_as(weights, flat))

    @own_gradient
    def run(x, *flat) -> Any:
        def grad(dy, *totals, variables=()) -> Any:
            # The second computation must depend on dy: otherwise it would run beside the first
            # one, or be merged with it. XLA ignores control dependencies, hence a sum.
            sources = [x + 0 * dy[:1, :1], *flat, *variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                with training_step(dataclasses.replace(before)):  # Draws the same masks.
                    y = compute(*sources[: 1 + len(flat)])
            dx, *rest = tape.gradient(y, sources, dy)
            dflat = [fused_sum(*pair) for pair in zip(totals, rest)]
            dvariables = rest[len(flat) :]
            # Otherwise the next layer might start while this one's inner values are still in use.
            with tf.control_dependencies([*dflat, *dvariables]):
                dx = tf.identity(dx)
            return ([dx, *dflat], dvariables) if variables else [dx, *dflat]

        return (compute(x, *flat), *flat), grad

    y, *flat = run(x, *tf.nest.flatten(weights))
    return y, *tf.nest.pack_sequence_as(weights, flat)
