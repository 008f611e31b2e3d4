# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a multiple-choice model predicts, as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf import files
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample, letter
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask

PREDICTIONS_FILE = "predictions.tsv"
PREDICT_RESULTS_FILE = "predict_results.json"


def write_outputs(
    task: MultipleChoiceTask,
    examples: Sequence[MultipleChoiceExample],
    outputs: Mapping[str, np.ndarray],
    output_dir: str,
) -> None:
    """Writes predictions.tsv and, if all answers are known, predict_results.json.

    Args:
      task: the task.
      examples: n questions.
      outputs: of MultipleChoiceTask.predict, [n, ...].
      output_dir: where the files go.
    """
    path = os.path.join(output_dir, PREDICTIONS_FILE)
    write_predictions(path, examples, outputs["probabilities"])
    print(f"Predictions for {len(examples):,} questions are in {path}.")
    if all(example.label is not None for example in examples):
        results = task.metrics(outputs)
        files.write_json(os.path.join(output_dir, PREDICT_RESULTS_FILE), results)
        print("\n".join(f"  {name:24} {value:.4f}" for name, value in results.items()))


def write_predictions(
    path: str, examples: Sequence[MultipleChoiceExample], probabilities: np.ndarray
) -> None:
    """Writes a TSV file: id, the letter of the likeliest option, the probability of each.

    Args:
      path: of the file.
      examples: n questions.
      probabilities: float [n, options].
    """
    rows = [["id", "prediction", *(letter(i) for i in range(probabilities.shape[1]))]]
    for example, row in zip(examples, probabilities):
        rows.append([example.id, letter(int(row.argmax())), *(f"{p:.6f}" for p in row)])
    # A tab or line end inside an id would break the table.
    text = "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    files.write_text(path, text)
