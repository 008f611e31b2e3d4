# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Input functions, and the context they are called with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class InputContext:
    """The part of the data that an input function should yield.

    Attributes:
      batch_size: examples of one global step (all replicas, all micro-batches).
      start_step: number of global batches to skip: the global step of the first batch.
      num_pipelines: number of input pipelines that share each global batch.
      pipeline_index: index i of this pipeline. It yields rows [i·b, (i+1)·b) of each global batch,
        where b = batch_size / num_pipelines.
    """

    batch_size: int
    start_step: int = 0
    num_pipelines: int = 1
    pipeline_index: int = 0

    @property
    def rows(self) -> int:
        """Number of rows that this pipeline yields of each global batch."""
        return self.batch_size // self.num_pipelines

    @property
    def row_slice(self) -> slice:
        """The rows of a global batch that this pipeline yields."""
        begin = self.pipeline_index * self.rows
        return slice(begin, begin + self.rows)


#: Batches are dicts of [rows, ...] tensors. Training batches never end. Evaluation batches hold
#: each example once, in any order; `example_index` (int32 [rows]) is the number of the example, or
#: -1 for rows that pad the last batches to full size.
#:
#: An input function may have the attribute `check` of a FileInput.
InputFn = Callable[[InputContext], "tf.data.Dataset"]


@dataclasses.dataclass(frozen=True)
class FileInput:
    """An input function that reads files, or data in memory.

    `check` is called if reading fails; it raises an AlbertError that names the damaged file and the
    place in it, if there is one.
    """

    batches: InputFn
    check: Callable[[], None] = dataclasses.field(default=lambda: None, compare=False)

    def __call__(self, context: InputContext) -> tf.data.Dataset:
        """Returns the batches."""
        import tensorflow as tf

        # AutoGraph would take longer than building the data set, which does not need it.
        dataset = tf.autograph.experimental.do_not_convert(self.batches)(context)
        # With autotuning, deleting an iterator can wait for the next round of tuning. Rounds double
        # in length, up to a minute: an evaluation may wait as long as it has computed. Without it,
        # tf.data.AUTOTUNE stands for one call per processor core.
        options = tf.data.Options()
        options.autotune.enabled = False
        return dataset.with_options(options)
