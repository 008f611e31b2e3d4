# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""GraphMode: what the graph being traced is for, which decides how the kernels compute."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


@dataclasses.dataclass
class DropoutStream:
    """The seeds of successive dropout masks, all derived from one seed.

    Attributes:
      seed: int32 [2].
      calls: number of masks drawn so far, counted while the graph is traced.
    """

    seed: tf.Tensor
    calls: int = 0


@dataclasses.dataclass(frozen=True)
class GraphMode:
    """How the operations being traced compute; `graph_mode` changes it.

    Attributes:
      fused_inference: fuse element-wise operations without training too; not for exported models.
      portable: use plain operations with TensorFlow's own gradients. For models that are exported
        for further training: a SavedModel cannot hold a gradient function that uses values of the
        forward pass, and not every machine has XLA.
      served: the graph only answers, in an exported SavedModel. Its operations are plain, too, in
        the forms that TensorFlow's graph optimizer fuses into oneDNN's products. Models that are
        built in this mode keep the kernels of dense layers in the compute type.
      compiled: the graph becomes part of one XLA program, which fuses operations by itself.
      tpu: the program is for a TPU, even if the strategy is none of TPUs; see `for_tpu`.
      cpu_kernel: the graph becomes one kernel for CPUs, see `fusion.fused`.
      layers: how many layers the transformer has; None: those of its configuration.
      recompute: keep only the output of each transformer layer for the backward pass, which
        computes the rest again; requires `dropout`. Losses and gradients stay the same, at the
        price of one more forward pass (Chen et al., 2016, "Training Deep Nets with Sublinear
        Memory Cost").
      dropout: where dropout takes its seeds from; None for random seeds.
    """

    fused_inference: bool = False
    portable: bool = False
    served: bool = False
    compiled: bool = False
    tpu: bool = False
    cpu_kernel: bool = False
    layers: int | None = None
    recompute: bool = False
    dropout: DropoutStream | None = None

    def fuses(self, training: bool) -> bool:
        """Returns whether to use the kernels for CPUs: XLA's together with oneDNN's."""
        wanted = (training or self.fused_inference) and not self.portable and not self.compiled
        return wanted and not tf.config.get_visible_devices("GPU")

    def for_tpu(self) -> bool:
        """Returns whether the program is for a TPU, and has kernels for it.

        Then activations stay in three dimensions [B, S, H]. The compiler chooses how each tensor
        lies in memory, and stores those of [B, S, N, d] as the products of the heads read them. Of
        [B * S, H] it would have to copy them.
        """
        tpu = self.tpu or isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
        return self.compiled and tpu and not self.portable

    def compiles(self, training: bool) -> bool:
        """Returns whether XLA compiles element-wise operations, alone or with the whole graph."""
        return self.compiled or self.fuses(training)


_DEFAULT = GraphMode()
_current = contextvars.ContextVar("graph_mode", default=_DEFAULT)


def current_mode() -> GraphMode:
    """Returns the mode of the graph being traced."""
    return _current.get()


@contextlib.contextmanager
def graph_mode(**changes: Any) -> Iterator[None]:
    """Changes fields of `GraphMode` for what is traced inside.

    The mode belongs to the thread: under MirroredStrategy enter it inside the replica function.
    """
    token = _current.set(dataclasses.replace(_current.get(), **changes))
    try:
        yield
    finally:
        _current.reset(token)
