# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a task predicts of a few examples, to check an export with."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.data.context import InputContext
from albert_tf.keras2 import keras
from albert_tf.tasks.base import FineTuningTask


def predict_examples(
    task: FineTuningTask, model: keras.Model, examples: Sequence[Any], sizes: Sequence[int]
) -> list[dict[str, np.ndarray]]:
    """Predicts examples that are read from records, as the runner does.

    Args:
      task: of the model; it has one record for each example.
      model: the model.
      examples: of the task's own type, without labels.
      sizes: number of examples in each probe, in order.

    Returns:
      For each probe, the outputs of `Task.predict` for its examples, [size, ...].
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        data = task.open_examples(examples, "probes", folder, labelled=False, pad_to_max=True)
        found = [
            {**task.predict(model, batch), "example_index": batch["example_index"]}
            for batch in data.source.eval_input_fn(InputContext(max(sizes)))
        ]
    outputs = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    # Rows that fill the last batch have the index -1, and come first.
    order = np.argsort(outputs["example_index"], kind="stable")[-sum(sizes) :]
    ends = np.cumsum(sizes)
    return [
        {name: value[order[end - size : end]] for name, value in outputs.items()}
        for size, end in zip(sizes, ends)
    ]
