# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of element-wise operations compiled into one kernel, between the matrix products.

On CPUs TensorFlow's element-wise operations, above all those on bfloat16, take as long as oneDNN's
matrix products, while XLA is fast at the former and slow at the latter. So each gets its part.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from albert_tf.io.streams import standard_error_shut


@functools.cache
def _start_xla() -> None:
    """Uses XLA once with standard error shut: TensorFlow announces the first use like a warning."""
    with standard_error_shut():
        tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))


_inference = contextvars.ContextVar("fused_inference", default=False)


@contextlib.contextmanager
def fused_inference() -> Iterator[None]:
    """What is traced inside is fused without training, too. For models that are not exported."""
    token = _inference.set(True)
    try:
        yield
    finally:
        _inference.reset(token)


_portable = contextvars.ContextVar("portable_graph", default=False)


@contextlib.contextmanager
def portable_graph() -> Iterator[None]:
    """What is traced inside is nothing but plain operations with TensorFlow's own gradients.

    For models that are exported to be trained: a SavedModel can hold neither a gradient function
    that uses values of the forward pass nor, on every machine, XLA.
    """
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


_compiled = contextvars.ContextVar("compiled_graph", default=False)


@contextlib.contextmanager
def compiled_graph(wanted: bool = True) -> Iterator[None]:
    """What is traced inside becomes part of one XLA program, which finds its own regions."""
    token = _compiled.set(wanted)
    try:
        yield
    finally:
        _compiled.reset(token)


def fuses(training: bool) -> bool:
    """Whether what is traced now is meant for a CPU's own kernels: XLA's beside oneDNN's."""
    wanted = (training or _inference.get()) and not _portable.get() and not _compiled.get()
    return wanted and not tf.config.get_visible_devices("GPU")


def compiles(training: bool) -> bool:
    """Whether XLA compiles element-wise chains traced now, alone or with the whole program."""
    return _compiled.get() or fuses(training)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """As tf.custom_gradient; inside `portable_graph` the gradient is left to TensorFlow."""

    @functools.wraps(function)
    def call(*args: tf.Tensor) -> Any:
        if _portable.get():
            return function(*args)[0]
        return tf.custom_gradient(function)(*args)

    return call


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of tensors run as one XLA kernel on CPU, when training or asked to.

    Otherwise the function runs as it is: inference keeps to plain operations, so that exported
    models need no compiler, and on a GPU XLA may lack the CUDA toolkit. The result is for use
    inside custom_gradient: no gradient flows through it when it is compiled.

    Returns:
      The function with an additional keyword argument `training`.
    """

    @functools.cache
    def compiled_for(*signature: tf.TensorSpec) -> Callable[..., Any]:
        # One trace a signature, made here and not by the call: TensorFlow warns of functions that
        # many calls have traced. Outside of the graph being built, which others will not share.
        with tf.init_scope():
            _start_xla()
            compiled = tf.function(function, jit_compile=True, autograph=False)
            return compiled.get_concrete_function(*signature)

    def call(*tensors: tf.Tensor, training: bool) -> Any:
        if not fuses(training):
            return function(*tensors)
        compiled = compiled_for(*[tf.TensorSpec(t.shape, t.dtype) for t in tensors])
        # A call seen by a gradient tape would also return all intermediate values.
        return compiled(*[tf.stop_gradient(tensor) for tensor in tensors])

    return call
