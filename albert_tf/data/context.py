# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Input functions, the context they are called with, and what their errors mean."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.errors import StoppedError
from albert_tf.io import storage

if TYPE_CHECKING:
    import tensorflow as tf

#: Errors of the input pipeline, which reach a step through the iterator: TensorFlow lists it among
#: the nodes ("[[{{node ParseExample}}]] [[IteratorGetNext]]"), unless it quotes a record with a
#: zero byte. A suffix as in "[[IteratorGetNext/_4]]" marks a transfer between devices, which fails
#: with any error. And ids and labels that the model does not have, as a CPU reports them.
_INPUT_ERROR = re.compile(
    r"IteratorGetNext\w*(\}\})?\]|Could not parse example input"
    r"|indices\[[\d,]*\] = \S+ is not in \[|Received a label value of \S+"
)


class InputContext(NamedTuple):
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


class FileInput(NamedTuple):
    """An input function that reads files, or data in memory.

    `check` is called if reading fails; it raises an AlbertError that names the damaged file and the
    place in it, if there is one.
    """

    batches: InputFn
    check: Callable[[], None]

    def __call__(self, context: InputContext) -> tf.data.Dataset:
        """Returns the batches, which are computed ahead."""
        import tensorflow as tf

        # AutoGraph would take longer than building the data set, which does not need it.
        dataset = tf.autograph.experimental.do_not_convert(self.batches)(context)
        # With autotuning, deleting an iterator can wait for the next round of tuning. Rounds double
        # in length, up to a minute: an evaluation may wait as long as it has computed. Without it,
        # tf.data.AUTOTUNE stands for one call per processor core.
        options = tf.data.Options()
        options.autotune.enabled = False
        return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


class DataSource:
    """Data for training and evaluation.

    Attributes:
      num_examples: their number.
      seed: of the training order.
      fingerprint: identifies the data and the batches that they make, except for the seed.
      description: describes the data, as JSON values.

    Subclasses have the input functions `_training` and `_evaluation`.
    """

    @property
    def train_input_fn(self) -> FileInput:
        """Yields training batches from `context.start_step` on; see InputFn."""
        return FileInput(self._training, self.check)

    @property
    def eval_input_fn(self) -> FileInput:
        """Yields every example once; see InputFn."""
        return FileInput(self._evaluation, self.check)

    def num_batches(self, batch_size: int) -> int:
        """Number of batches that `eval_input_fn` yields."""
        return -(-self.num_examples // batch_size)

    def reseeded(self, seed: int) -> DataSource:
        """Returns the same data in another training order."""
        other = copy.copy(self)
        other.seed = seed
        return other

    def check(self) -> None:
        """Reads all data to find out why a run failed; see FileInput."""


@contextlib.contextmanager
def data_errors(input_fn: InputFn) -> Iterator[None]:
    """Calls `input_fn.check`, if there is one, after an error of the data, to name the fault.

    Raises:
      StoppedError: the data cannot be read for now.
      AlbertError: as raised by `check`. Other errors pass.
    """
    import tensorflow as tf

    try:
        yield
    # If TensorFlow quotes a record that is no example, the message is not UTF-8.
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        if isinstance(error, tf.errors.OpError):
            message = str(error)
            if not _INPUT_ERROR.search(message):
                raise
            if reason := storage.system_message(message):
                line = next(line for line in message.splitlines() if reason in line)
                raise StoppedError(
                    f"The input records cannot be read ({line.strip()[:300]}); mend that, or wait, "
                    "and run the same command again."
                ) from error
            # Another one is, for example, of a worker that is lost.
            if not isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
                raise
        getattr(input_fn, "check", lambda: None)()
        raise
