# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of element-wise operations compiled into one kernel, between the matrix products.

On CPUs TensorFlow's element-wise operations, above all those on bfloat16, take as long as oneDNN's
matrix products. XLA is fast at the former and slow at the latter, so each does its part.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from albert_tf.modeling.kernels.graph_mode import current_mode, graph_mode


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like tf.custom_gradient, but leaves the gradient of portable graphs to TensorFlow."""

    @functools.wraps(function)
    def call(*args: tf.Tensor) -> Any:
        if current_mode().portable:
            return function(*args)[0]
        return freed_with_graph(tf.custom_gradient(function)(*args))

    return call


def freed_with_graph(results: Any) -> Any:
    """Returns the results of a tf.custom_gradient; its gradient function now ends with their graph.

    TensorFlow registers the function for the whole process. As it refers to tensors of the graph,
    no graph with a custom gradient would ever be freed. Here it moves to the operation.
    """
    if not tf.executing_eagerly():
        operation = tf.nest.flatten(results)[0].op
        with contextlib.suppress(ValueError):  # A collective operation has no such function.
            name = operation.get_attr("_gradient_op_type").decode()
            operation._gradient_function = ops.gradient_registry._registry.pop(name)["type"]
    return results


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors into one XLA kernel where `GraphMode.fuses`.

    Elsewhere the function runs unchanged: inference keeps to plain operations, so that exported
    models need no compiler, and on a GPU XLA may lack the CUDA toolkit. Use the result inside
    `custom_gradient` only: no gradient flows through a compiled function.

    Returns:
      The function with an additional keyword argument `training`.
    """

    @functools.cache
    def compiled_for(*signature: tf.TensorSpec) -> Callable[..., Any]:
        # Traced here once per signature, not by the call: TensorFlow warns of functions that many
        # calls have traced. Outside of the graph being built, which other graphs do not share.
        with tf.init_scope(), graph_mode(cpu_kernel=True):
            compiled = tf.function(function, jit_compile=True, autograph=False)
            return compiled.get_concrete_function(*signature)

    def call(*tensors: tf.Tensor, training: bool) -> Any:
        if not current_mode().fuses(training):
            return function(*tensors)
        compiled = compiled_for(*[tf.TensorSpec(t.shape, t.dtype) for t in tensors])
        # Under a gradient tape the call would also return all intermediate values.
        return compiled(*[tf.stop_gradient(tensor) for tensor in tensors])

    return call


def row_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the last axis and keeps it with one element.

    XLA on CPUs adds up the elements of a row one by one. So a kernel for CPUs first adds up eighths
    of the row, which are vectors.
    """
    width = x.shape[-1]
    if current_mode().cpu_kernel and width is not None and width % 8 == 0:
        x = functools.reduce(tf.add, tf.split(x, 8, axis=-1))
    return tf.reduce_sum(x, axis=-1, keepdims=True)
