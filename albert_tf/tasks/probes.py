# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions for a few examples, to check exports with."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.data.context import InputContext
from albert_tf.export.self_check import text_batches
from albert_tf.keras2 import keras
from albert_tf.tasks.base import FineTuningTask, InputOptions


def predict_texts(
    task: FineTuningTask, model: keras.Model, make_example: Callable[[int, str], Any]
) -> Iterator[tuple[str, list[str], dict[str, np.ndarray]]]:
    """Predicts examples made of the texts of `text_batches`.

    Args:
      task: of the model; it has one record for each example.
      model: the model.
      make_example: makes an example without a label from its row in a batch and its text.

    Yields:
      The name of each batch, its texts and the outputs of `Task.predict`.
    """
    batches = list(text_batches())
    examples = [make_example(row, text) for _, texts in batches for row, text in enumerate(texts)]
    outputs = predict_examples(task, model, examples, [len(texts) for _, texts in batches])
    for (length, texts), predicted in zip(batches, outputs):
        yield length, texts, predicted


def predict_examples(
    task: FineTuningTask, model: keras.Model, examples: Sequence[Any], sizes: Sequence[int]
) -> list[dict[str, np.ndarray]]:
    """Predicts examples from records, as the runner does.

    Args:
      task: of the model; it has one record for each example.
      model: the model.
      examples: of the task's own type, without labels.
      sizes: the number of examples in each probe; their sum is the number of examples.

    Returns:
      For each probe, the outputs of `Task.predict` for its examples, [size, ...].
    """
    with tempfile.TemporaryDirectory() as folder:
        options = InputOptions(folder, labelled=False, pad_to_max=True)
        source = task.make_records(examples, "probes", options).source
        batches = [
            {**task.predict(model, batch), "example_index": batch["example_index"]}
            for batch in source.eval_input_fn(InputContext(max(sizes)))
        ]
    outputs = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    # Rows that fill the last batch have the index -1; they sort first and are dropped.
    order = np.argsort(outputs["example_index"], kind="stable")[-sum(sizes) :]
    ends = np.cumsum(sizes)
    return [
        {name: value[order[end - size : end]] for name, value in outputs.items()}
        for size, end in zip(sizes, ends)
    ]
