# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Input functions: what gives a run its batches, and what they are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class InputContext:
    """Which part of the data an input function is asked for.

    Attributes:
      batch_size: examples of one global step (all replicas, all micro-batches).
      start_step: global batches before the first one: the global step it belongs to, unless
        batches were passed over after a divergence.
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


#: Training batches are dicts of [rows, ...] tensors and never end. Evaluation batches end; they
#: hold the examples in any order, and `example_index` (int32 [rows]) tells which one a row is; -1
#: stands for the rows that pad the last batches to full size.
#:
#: Where a function has the attributes `files` and `check` of a FileInput, they are used.
InputFn = Callable[[InputContext], "tf.data.Dataset"]


@dataclasses.dataclass(frozen=True)
class FileInput:
    """An input function that reads files.

    Attributes:
      batches: the function.
      files: what it reads.
      check: called if reading fails; raises an AlbertError that says which file is damaged, and
        where, if one is.
    """

    batches: InputFn
    files: Sequence[str] = dataclasses.field(compare=False)
    check: Callable[[], None] = dataclasses.field(compare=False)

    def __call__(self, context: InputContext) -> tf.data.Dataset:
        """The batches."""
        import tensorflow as tf

        # Converting Python's `if` and `for` to graphs takes longer than all else, and the functions
        # of our data sets are not written for it.
        return tf.autograph.experimental.do_not_convert(self.batches)(context)
