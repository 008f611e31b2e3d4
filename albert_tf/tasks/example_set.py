# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""ExampleSet: the examples of a task with their token sequences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.data.length_batches import Sequences, length_batches
from albert_tf.io.tensorflow_import import check_not_forked
from albert_tf.training.specs import EvalSpec
from albert_tf.training.task import Batch, Tensors, without_nan


@dataclasses.dataclass(eq=False)
class ExampleSet:
    """Examples of a task, and their token sequences.

    Attributes:
      examples: of the task's own type.
      source: their token sequences, in the order of the examples; one or several for each.
      summary: describes them on the terminal.
      identity: identifies what the examples have besides `source`.
      name: of the data set, for the terminal and the names of metrics.
      notes: what happened to some of the examples, such as that sequences are cut.
    """

    examples: Sequence[Any]
    source: Sequences
    summary: str
    identity: str = ""
    name: str = ""
    notes: Sequence[str] = ()

    @property
    def fingerprint(self) -> str:
        """Identifies the data, their labels included."""
        return f"{self.source.fingerprint}-{self.identity}"

    def eval_spec(self, batch_size: int, every_steps: int | None = None) -> EvalSpec:
        """Returns the EvalSpec that evaluates on, or predicts, these examples."""
        read, batches = self.source.eval_input_fn, self.source.num_batches(batch_size)
        return EvalSpec(read, every_steps, batches, self.name, self, self.fingerprint)

    def outputs(
        self, predict: Callable[[Batch], Tensors], batch_size: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of `Task.predict` for all sequences or groups, [n, ...], in order.

        Raises:
          DivergedError: an output is NaN.
        """
        check_not_forked()
        rows, parts = [], []
        for batch, length in length_batches(self.source.longest, "predicting", batch_size):
            rows.append(batch)
            outputs = predict(self.source.batch(batch, length))
            parts.append({name: value.numpy() for name, value in outputs.items()})
        order = np.argsort(np.concatenate(rows))
        outputs = {k: np.concatenate([part[k] for part in parts])[order] for k in parts[0]}
        return without_nan(outputs)
