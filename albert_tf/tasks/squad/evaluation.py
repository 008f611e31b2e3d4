# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluating and predicting with a trained model: files of answers, scores, the threshold kept.

A model of SQuAD 2.0 leaves a question unanswered if its null odds are above a threshold. The one
that is best for the dev data is kept beside the model, for questions whose answers are not known.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.errors import AlbertError, DivergedError
from albert_tf.io import files
from albert_tf.tasks.squad.answer_files import write_answers
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.data import check_threshold
from albert_tf.tasks.squad.question_set import QuestionSet
from albert_tf.tasks.squad.task import BASELINE
from albert_tf.training.estimator import Estimator
from albert_tf.training.results import write_results

THRESHOLDS_FILE = "thresholds.json"
#: Where dev data has not given a threshold: no answer wins if the model holds it the likelier.
DEFAULT_THRESHOLD = 0.0


def evaluate(
    estimator: Estimator,
    asked: QuestionSet,
    output_dir: str,
    threshold: float | None = None,
    *,
    find_threshold: bool = False,
) -> dict[str, float]:
    """Answers questions and scores the answers; writes eval_results.json and what `predict` does.

    In a cluster the chief writes the files.

    Args:
      estimator: of the model's folder.
      asked: the questions.
      output_dir: where files go.
      threshold: on the null odds; None for the one kept with the model.
      find_threshold: take the one that is best for these questions, and keep it. Done anyway if
        none is known.

    Returns:
      See QuestionSet.score.

    Raises:
      AlbertError: see `check_threshold`.
      DivergedError: the model gives NaN; eval_results.json says so by null.
    """
    check_threshold(asked.task.spec.version, threshold)
    folder = estimator.config.output_dir
    try:
        answers = _answers(estimator, asked)
    except DivergedError:
        write_results(output_dir, {asked.task.best_metric: math.nan}, estimator.chief)
        raise
    if asked.task.spec.version == "2.0" and not (find_threshold and threshold is None):
        threshold = _known_threshold(folder, threshold)
    results = asked.score(answers, threshold)
    if not estimator.chief:
        return results
    if asked.task.spec.version == "2.0" and threshold is None:
        threshold = results["null_threshold"]
        kept = {"null_threshold": threshold, "f1": results["f1"], "found_on": asked.path}
        files.write_json(os.path.join(folder, THRESHOLDS_FILE), kept)
        print(f"Threshold on the null odds: {threshold:.4f}, the best for {asked.path}; kept.")
    write_answers(output_dir, answers, threshold)
    report(output_dir, results)
    return results


def report(output_dir: str, results: Mapping[str, float]) -> None:
    """Prints the scores and writes eval_results.json."""
    print("\n".join(f"  {name:24} {value:.4f}" for name, value in results.items()))
    if results["f1"] <= results.get(BASELINE, 0.0):
        print("That is no better than leaving every question unanswered.")
    write_results(output_dir, results)


def predict(
    estimator: Estimator, asked: QuestionSet, output_dir: str, threshold: float | None = None
) -> None:
    """Writes predictions.json, nbest_predictions.json and, for 2.0, null_odds.json.

    In a cluster the chief writes the files.

    Args:
      estimator: of the model's folder.
      asked: the questions.
      output_dir: where files go.
      threshold: on the null odds; None for the one kept with the model.

    Raises:
      AlbertError: see `check_threshold`.
    """
    check_threshold(asked.task.spec.version, threshold)
    answers = _answers(estimator, asked)
    if not estimator.chief:
        return
    if asked.task.spec.version == "2.0":
        threshold = _known_threshold(estimator.config.output_dir, threshold)
        if threshold is None:
            threshold = DEFAULT_THRESHOLD
            print(f"Threshold on the null odds: {threshold}, as no --do_eval has found one.")
    path = write_answers(output_dir, answers, threshold)
    print(f"Answers to {len(asked.questions):,} questions are in {path}.")


def _answers(estimator: Estimator, asked: QuestionSet) -> Answers:
    batches = asked.source.num_batches(estimator.config.eval_batch_size)
    return asked.answers(estimator.predict(asked.source.eval_input_fn, max_steps=batches))


def load_threshold(folder: str) -> tuple[float, str] | None:
    """The threshold kept beside the model in `folder`, and on which file it was found.

    Raises:
      AlbertError: the file is damaged.
    """
    path = os.path.join(folder, THRESHOLDS_FILE)
    if not tf.io.gfile.exists(path):
        return None
    value = files.read_object(path, "file of thresholds")
    try:
        return float(value["null_threshold"]), str(value["found_on"])
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise AlbertError(f"{path} holds no null_threshold; delete it, evaluate again.") from error


def _known_threshold(folder: str, given: float | None) -> float | None:
    found = load_threshold(folder) if given is None else (given, "as given")
    if found is None:
        return None
    origin = found[1] if given is not None else f"found on {found[1]}"
    print(f"Threshold on the null odds: {found[0]:.4f}, {origin}.")
    return found[0]
