# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""GraphMode: what operations are traced for, which decides how the kernels compute."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow import Tensor
from tensorflow.python.eager import record
from tensorflow.python.framework import ops

from albert_tf.errors import AlbertError


class GraphMode(enum.Enum):
    """What operations are traced for. The training loop and the exports choose it.

    All modes compute the same, except that CPU, XLA and TPU draw other dropout masks than PLAIN and
    GPU. The last four have hand-written gradients, which keep less for the backward pass and can be
    taken once only.
    """

    #: TensorFlow's operations with its own gradients, of any order: whatever calls a model itself.
    PLAIN = enum.auto()
    #: A SavedModel that only answers: plain operations, in the forms that TensorFlow's graph
    #: optimizer fuses into oneDNN's products. Models that are built in this mode keep the kernels
    #: of dense layers in the compute type.
    SERVED = enum.auto()
    #: Steps on CPUs: XLA compiles the chains of element-wise operations, see `cpu_kernel`.
    CPU = enum.auto()
    #: Steps on GPUs without XLA.
    GPU = enum.auto()
    #: Steps that XLA compiles as a whole.
    XLA = enum.auto()
    #: The same for TPUs. Activations keep three dimensions [B, S, H]: the compiler chooses how a
    #: tensor lies in memory, and stores [B, S, N, d] as the products of the heads read it. What
    #: comes from [B * S, H], it would have to copy.
    TPU = enum.auto()

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the whole graph."""
        return self in (GraphMode.XLA, GraphMode.TPU)


@dataclasses.dataclass
class TrainingStep:
    """What a training step decides for the layers of a model.

    Attributes:
      seed: int32 [2], from which the seeds of all dropout masks are derived.
      layers: how many layers the transformer has; None: those of its configuration.
      recompute: keep only the output of each transformer layer for the backward pass, which
        computes the rest again; in modes with hand-written gradients. Losses and gradients stay the
        same, at the price of one more forward pass (Chen et al., 2016, "Training Deep Nets with
        Sublinear Memory Cost").
      masks: number of dropout masks drawn so far, counted while the graph is traced.
    """

    seed: Tensor
    layers: int | None = None
    recompute: bool = False
    masks: int = 0


_mode = contextvars.ContextVar("graph_mode", default=GraphMode.PLAIN)
_step = contextvars.ContextVar("step", default=None)


#: Return the mode of what is traced, and the training step, None outside of one.
current_mode, current_step = _mode.get, _step.get


@contextlib.contextmanager
def _value(variable: contextvars.ContextVar, value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


#: Sets the mode of what is traced inside. The mode belongs to the thread: under MirroredStrategy
#: enter it inside the replica function.
graph_mode = functools.partial(_value, _mode)
#: Makes what is traced inside part of a training step; on threads likewise.
training_step = functools.partial(_value, _step)


def own_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like tf.custom_gradient, in modes with hand-written gradients; others use TensorFlow's.

    The gradient function computes in the mode of the forward pass, and only once.
    """

    @functools.wraps(function)
    def call(*args) -> Any:
        mode = current_mode()
        if mode in (GraphMode.PLAIN, GraphMode.SERVED):
            return function(*args)[0]

        def with_gradient(*args) -> Any:
            result, grad = function(*args)

            def checked(*dy, **variables) -> Any:
                if record.could_possibly_record():  # A second gradient would silently be wrong.
                    raise AlbertError(
                        f"The mode {mode.name} has no gradients of gradients; call the model "
                        "inside of graph_mode(GraphMode.PLAIN), see "
                        "albert_tf/modeling/kernels/graph_mode.py."
                    )
                with graph_mode(mode):
                    return grad(*dy, **variables)

            return result, checked

        return freed_with_graph(tf.custom_gradient(with_gradient)(*args))

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


def cpu_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a chain of element-wise operations into one kernel by XLA, in the mode CPU only.

    On CPUs TensorFlow's element-wise operations, above all those on bfloat16, take as long as
    oneDNN's matrix products. XLA is fast at the former and slow at the latter, so each does its
    part. Use the result inside of `own_gradient`: no gradient flows through a compiled function.
    """

    @functools.cache
    def compiled_for(*signature) -> Callable[..., Any]:
        # Traced here once per signature, not by the call: TensorFlow warns of functions that many
        # calls have traced. Outside of the graph being built, which other graphs do not share.
        with tf.init_scope():
            compiled = tf.function(function, jit_compile=True, autograph=False)
            return compiled.get_concrete_function(*signature)

    @functools.wraps(function)
    def call(*tensors) -> Any:
        if current_mode() is not GraphMode.CPU:
            return function(*tensors)
        compiled = compiled_for(*[tf.TensorSpec(t.shape, t.dtype) for t in tensors])
        # Under a gradient tape the call would also return all intermediate values.
        return compiled(*[tf.stop_gradient(tensor) for tensor in tensors])

    return call


def row_sums(x: Tensor) -> Tensor:
    """Sums the last axis and keeps it with one element; for use in a `cpu_kernel`.

    XLA on CPUs adds up the elements of a row one by one. So there, eighths of the row, which are
    vectors, are added up first.
    """
    width = x.shape[-1]
    if current_mode() is GraphMode.CPU and width is not None and width % 8 == 0:
        x = functools.reduce(tf.add, tf.split(x, 8, axis=-1))
    return tf.reduce_sum(x, axis=-1, keepdims=True)
