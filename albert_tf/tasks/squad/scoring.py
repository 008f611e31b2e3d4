# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact match, F1 and the threshold for "no answer", equal to SQuAD's official evaluation scripts.

  python -m albert_tf.tasks.squad.scoring DATA.json PREDICTIONS.json --version=1.1

prints a JSON object with their names and values. Sums run in the official order, so that the scores
are equal to the last digit.
"""

from __future__ import annotations

import collections
import functools
import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.tasks.squad.answers import Answers, predictions
from albert_tf.tasks.squad.data import VERSIONS, Question, read_squad

FLAGS = flags.FLAGS
#: The metric with the score of leaving every question unanswered; see `Task.constant_answers`.
BASELINE = "all_null_f1"
CONSTANT_ANSWERS = {"f1": BASELINE}
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text: str) -> str:
    """Converts to lower case; removes ASCII punctuation, articles and redundant white space."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, gold: str) -> int:
    """Returns 1 if the two are equal after normalization, else 0."""
    return int(normalize_answer(prediction) == normalize_answer(gold))


def f1(prediction: str, gold: str) -> float:
    """Returns the harmonic mean of the words' precision and recall; 0 if either has no words."""
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    common = sum((collections.Counter(predicted) & collections.Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    questions: Sequence[Question], answers: Answers, version: str, threshold: float | None
) -> dict[str, float]:
    """Scores answers as the official scripts do, from 0 to 100.

    Args:
      questions: questions with gold answers.
      answers: answers to these questions.
      version: "1.1" or "2.0".
      threshold: for 2.0, null odds above which a question counts as unanswerable; None for the
        value with the best F1 on these questions.

    Returns:
      The official metrics; for 2.0 also those of `find_best_thresholds`, the `null_threshold` that
      was applied, and `all_null_f1`, the F1 of leaving every question unanswered.
    """
    best_answers = predictions(answers, None)
    if version == "1.1":
        return score(questions, best_answers, version="1.1")
    if threshold is None:
        threshold = answer_threshold(questions, best_answers, answers.null_odds)
    return {
        **score(questions, predictions(answers, threshold), version="2.0"),
        **find_best_thresholds(questions, best_answers, answers.null_odds),
        "null_threshold": threshold,
        BASELINE: no_answer_score(questions)["f1"],
    }


def score(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    *,
    version: str,
    null_odds: Mapping[str, float] | None = None,
    na_prob_thresh: float = 1.0,
) -> dict[str, float]:
    """Scores predictions in percent.

    Args:
      questions: questions with gold answers; in 2.0 a question without any is unanswerable.
      predictions: answers by question id; "" for no answer. In 1.1 a missing one scores 0.
      version: "1.1" or "2.0".
      null_odds: 2.0 only: by question id, the larger the more likely it is unanswerable.
      na_prob_thresh: questions with null odds above it count as left unanswered. The default is
        that of the official script and suits probabilities.

    Returns:
      1.1: exact_match and f1. 2.0: exact, f1 and total, the same with HasAns_ and NoAns_ for
      answerable and unanswerable questions, and with null_odds those of `find_best_thresholds`.

    Raises:
      AlbertError: no prediction belongs to these questions, one is not a string, or (2.0) one is
        missing; null_odds lacks a question; a question has no gold answer (1.1).
    """
    _check(questions, predictions, version)
    columns = _scores(questions, predictions, version)
    if version == "1.1":
        return {
            {"exact": "exact_match"}.get(name, name): 100.0 * sum(values.tolist()) / len(questions)
            for name, values in columns.items()
        }
    answerable = _answerable(questions)
    best: dict[str, float] = {}
    if null_odds is not None:
        best = find_best_thresholds(questions, predictions, null_odds)
        above = _odds(questions, null_odds) > na_prob_thresh
        columns = {k: np.where(above, ~answerable, values) for k, values in columns.items()}
    result: dict[str, float] = {}
    groups = {"": answerable | True, "HasAns_": answerable, "NoAns_": ~answerable}
    for prefix, chosen in groups.items():
        if total := int(chosen.sum()):
            for name, values in columns.items():
                result[prefix + name] = 100.0 * sum(values[chosen].tolist()) / total
            result[f"{prefix}total"] = total
    return {**result, **best}


def find_best_thresholds(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """Finds the thresholds of `null_odds` with the best scores, as the official 2.0 script does.

    If no threshold beats leaving every question unanswered, it is 0 by definition, whatever the
    odds; `answer_threshold` returns one that can be applied.

    Returns:
      best_exact, best_exact_thresh, best_f1 and best_f1_thresh. A threshold is the null odds of a
      question, which is still answered.

    Raises:
      AlbertError: see `score`.
    """
    result = {}
    for name in ("exact", "f1"):
        ranked, totals = _totals_by_threshold(questions, predictions, null_odds, name)
        best = int(np.argmax(totals))
        result[f"best_{name}"] = float(100.0 * totals[best] / len(questions))
        result[f"best_{name}_thresh"] = float(ranked[best - 1]) if best else 0.0
    return result


def answer_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> float:
    """Returns the threshold with the best F1: questions with higher null odds stay unanswered.

    It differs from the official best_f1_thresh where that cannot be applied: it never separates
    questions with equal odds, and is below all odds if no answer is best. It lies halfway to the
    next question's odds, so that rounding does not matter.

    Raises:
      AlbertError: see `score`.
    """
    ranked, totals = _totals_by_threshold(questions, predictions, null_odds, "f1")
    last_of_equals = np.append(ranked[1:] != ranked[:-1], True)
    totals[1:][~last_of_equals] = -np.inf
    best = int(np.argmax(totals))
    bounds = np.concatenate([ranked[:1] - 2.0, ranked, ranked[-1:] + 2.0])
    return float(bounds[best] + bounds[best + 1]) / 2.0


def no_answer_score(questions: Sequence[Question]) -> dict[str, float]:
    """Returns the 2.0 scores of leaving every question unanswered, a baseline."""
    return score(questions, {question.id: "" for question in questions}, version="2.0")


def _totals_by_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    metric: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sorted odds, [n], and the summed scores if the first k are answered, [n + 1].

    An unanswerable question is right until it is answered.
    """
    _check(questions, predictions, "2.0")
    odds, answerable = _odds(questions, null_odds), _answerable(questions)
    answered = np.array([bool(predictions[question.id]) for question in questions])
    gains = np.where(
        answerable, _scores(questions, predictions, "2.0")[metric], -answered.astype(float)
    )
    order = np.argsort(odds, kind="stable")
    return odds[order], np.cumsum(np.append(float((~answerable).sum()), gains[order]))


def _answerable(questions: Sequence[Question]) -> np.ndarray:
    return np.array([bool(question.answers) for question in questions])


def _scores(
    questions: Sequence[Question], predictions: Mapping[str, str], version: str
) -> dict[str, np.ndarray]:
    """Returns the scores `exact` and `f1` of each question, without a threshold, float64 [n]."""
    exact, f1_scores = [], []
    for question in questions:
        # A missing prediction is never right. In 2.0, gold answers that are empty after
        # normalization do not count.
        prediction, gold = predictions.get(question.id), [a.text for a in question.answers]
        if version == "2.0":
            gold = [text for text in gold if normalize_answer(text)] or [""]
        found = prediction is not None
        exact.append(float(found and max(exact_match(prediction, text) for text in gold)))
        if gold == [""]:
            f1_scores.append(exact[-1])
        else:
            f1_scores.append(float(found and max(f1(prediction, text) for text in gold)))
    return {"exact": np.array(exact), "f1": np.array(f1_scores)}


def _check(questions: Sequence[Question], predictions: Mapping[str, Any], version: str) -> None:
    missing = [question.id for question in questions if question.id not in predictions]
    if len(missing) == len(questions) or (missing and version == "2.0"):
        raise AlbertError(
            f"The predictions lack {len(missing)} of {len(questions)} questions, such as "
            f"{missing[0]}; do they belong to this data?"
        )
    for question in questions:
        answer = predictions.get(question.id, "")
        if not isinstance(answer, str):
            raise AlbertError(
                f"The prediction for question {question.id} is {short_repr(answer)}; a string was "
                "expected."
            )
        if version == "1.1" and not question.answers:
            raise AlbertError(f"{question.where} has no answers to compare with.")


def _odds(questions: Sequence[Question], null_odds: Mapping[str, float]) -> np.ndarray:
    try:
        return np.array([float(null_odds[question.id]) for question in questions])
    except KeyError as error:
        raise AlbertError(f"The null odds lack question {error.args[0]}.") from error
    except (OverflowError, TypeError, ValueError) as error:
        raise AlbertError(f"The null odds must be numbers: {short_repr(error, 200)}.") from error


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum(
        "version", None, VERSIONS, "Version of SQuAD; 2.0 has unanswerable questions.",
        required=True,
    )  # fmt: skip
    define_path(
        "null_odds", None, "2.0: JSON file with a number for each question, the larger the more "
        "likely it is unanswerable. Adds the best thresholds to the scores."
    )  # fmt: skip
    flags.DEFINE_float(
        "na_prob_thresh", 1.0, "2.0, with --null_odds: questions whose null odds are above it "
        "count as unanswered. The default is that of the official script, for odds that are "
        "probabilities.",
    )  # fmt: skip


def _main(data: str, predictions: str) -> None:
    if FLAGS.null_odds and FLAGS.version == "1.1":
        raise AlbertError(
            "--null_odds is for --version=2.0; in SQuAD 1.1 every question has an answer."
        )
    if FLAGS["na_prob_thresh"].present and not FLAGS.null_odds:
        raise AlbertError("--na_prob_thresh is a threshold on --null_odds, which is not given.")
    scores = score(
        read_squad(data, version=FLAGS.version),
        files.read_object(predictions, "prediction file"),
        version=FLAGS.version,
        null_odds=files.read_object(FLAGS.null_odds, "null odds file") if FLAGS.null_odds else None,
        na_prob_thresh=FLAGS.na_prob_thresh,
    )
    log.info(json.dumps(scores, indent=2))


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags, ("DATA.json", "PREDICTIONS.json"))


if __name__ == "__main__":
    main()
