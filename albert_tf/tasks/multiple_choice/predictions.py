# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions of multiple-choice models: their metrics, their files, and the mean of several.

Source of the mean: Lan et al. (2020), section 4.9.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from albert_tf.io import files
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample, letter
from albert_tf.tasks.multiple_choice.features import GROUPS
from albert_tf.tasks.prediction_tables import (
    PREDICTIONS_FILE,
    read_predictions,
    write_predictions,
)
from albert_tf.training.results import print_metrics

PREDICT_RESULTS_FILE = "predict_results.json"
FILES = (PREDICTIONS_FILE, PREDICT_RESULTS_FILE)


def multiple_choice_metrics(
    probabilities: np.ndarray, label_ids: np.ndarray, group_ids: np.ndarray
) -> dict[str, float]:
    """Returns the metrics of multiple choice, and those of guessing.

    Args:
      probabilities: float [n, options].
      label_ids: int [n].
      group_ids: int [n], indices into GROUPS.

    Returns:
      `accuracy`, `<group>_accuracy` for each group with questions, `loss` (mean negative
      log-likelihood), `chance_accuracy` and `chance_loss`.
    """
    right = probabilities.argmax(axis=-1) == label_ids
    likelihoods = np.take_along_axis(probabilities, label_ids[:, None].astype(np.int64), axis=-1)
    metrics = {"accuracy": right.mean()}
    for number, group in enumerate(GROUPS):
        if group and (group_ids == number).any():
            metrics[f"{group}_accuracy"] = right[group_ids == number].mean()
    metrics["loss"] = -np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny)).mean()
    metrics["chance_accuracy"] = 1 / probabilities.shape[1]
    metrics["chance_loss"] = math.log(probabilities.shape[1])
    return {name: float(value) for name, value in metrics.items()}


def write_outputs(
    examples: Sequence[MultipleChoiceExample], probabilities: np.ndarray, output_dir: str
) -> None:
    """Writes predictions.tsv and, if all questions are labelled, predict_results.json.

    Args:
      examples: n questions.
      probabilities: float [n, options].
      output_dir: folder of the files.
    """
    path = os.path.join(output_dir, PREDICTIONS_FILE)
    results_path = os.path.join(output_dir, PREDICT_RESULTS_FILE)
    if files.exists(results_path):
        files.write_json(results_path, {})  # Those there are of the former predictions.
    write_predictions(path, (example.id for example in examples), probabilities, _letters(examples))
    print(f"Predictions for {len(examples):,} questions are in {path}.")
    labels = [example.label for example in examples]
    if None not in labels:
        groups = [GROUPS.index(example.group) for example in examples]
        results = multiple_choice_metrics(probabilities, np.array(labels), np.array(groups))
        files.write_json(results_path, results)
        print_metrics(results)


def average_predictions(
    examples: Sequence[MultipleChoiceExample], run_dirs: Sequence[str]
) -> np.ndarray:
    """Returns the mean of the probabilities that several models predict.

    Args:
      examples: n questions.
      run_dirs: folders with the predictions.tsv of each model.

    Returns:
      Float64 [n, options].

    Raises:
      AlbertError: see `read_predictions`.
    """
    ids = [example.id for example in examples]
    what, advice = "this set of questions", "predict the same questions with every model"
    paths = [os.path.join(folder, PREDICTIONS_FILE) for folder in run_dirs]
    letters = _letters(examples)
    return np.mean([read_predictions(p, ids, letters, what, advice) for p in paths], axis=0)


def _letters(examples: Sequence[MultipleChoiceExample]) -> list[str]:
    return [letter(i) for i in range(len(examples[0].options))]
