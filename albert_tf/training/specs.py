# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""RunConfig, TrainSpec, EvalSpec and InputContext: what a run is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class InputContext:
    """Which part of the data an input function is asked for.

    Attributes:
      batch_size: examples of one global step (all replicas, all micro-batches).
      start_step: the global step the first batch belongs to.
      num_pipelines: input pipelines that together serve a global batch.
      pipeline_index: which of them this is; it gets rows [i·b, (i+1)·b) of every global batch,
        b = batch_size / num_pipelines.
    """

    batch_size: int
    start_step: int = 0
    num_pipelines: int = 1
    pipeline_index: int = 0

    @property
    def rows(self) -> int:
        """Rows of each global batch that this pipeline yields."""
        return self.batch_size // self.num_pipelines


#: Training batches are dicts of [rows, ...] tensors and never end. Evaluation batches end; the last
#: is padded to full size and `is_real_example` (bool [rows]) tells the real rows.
InputFn = Callable[[InputContext], "tf.data.Dataset"]


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """What to train on and for how long.

    Attributes:
      input_fn: yields the training batches from a given step on; a pure function of its context.
      max_steps: the global step to stop at.
    """

    input_fn: InputFn
    max_steps: int


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """What to evaluate on.

    Attributes:
      input_fn: yields the evaluation batches in a fixed order, once.
      every_steps: evaluate every so many training steps; None: only at the end.
      max_steps: evaluate at most so many batches; None: all.
      name: prefix of the metrics.
    """

    input_fn: InputFn
    every_steps: int | None = None
    max_steps: int | None = None
    name: str = "eval"
