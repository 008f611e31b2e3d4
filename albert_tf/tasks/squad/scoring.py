# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact match, F1 and the threshold for "no answer", equal to SQuAD's official evaluation scripts.

Sums run in the official order, so that the figures are equal to the last digit.
"""

from __future__ import annotations

import collections
import functools
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import shown
from albert_tf.tasks.squad.data import Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and superfluous white space."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, gold: str) -> int:
    """1 if the two are the same after normalisation, else 0."""
    return int(normalize_answer(prediction) == normalize_answer(gold))


def f1(prediction: str, gold: str) -> float:
    """Harmonic mean of precision and recall of the words; 0 if one of the two has none."""
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    common = sum((collections.Counter(predicted) & collections.Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def score(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    *,
    version: str,
    null_odds: Mapping[str, float] | None = None,
    na_prob_thresh: float = 1.0,
) -> dict[str, float]:
    """Scores answers in per cent.

    Args:
      questions: with their answers; in 2.0 a question without any counts as unanswerable.
      predictions: answers by question id; "" for none. In 1.1 a missing one scores 0.
      version: "1.1" or "2.0".
      null_odds: 2.0 only: by question id, the larger the likelier it is unanswerable.
      na_prob_thresh: with null_odds: a question above it counts as left unanswered. The official
        script's default is meant for probabilities.

    Returns:
      1.1: exact_match and f1. 2.0: exact, f1 and total, the same with HasAns_ and NoAns_ for
      answerable and unanswerable questions, and with null_odds those of `find_best_thresholds`.

    Raises:
      AlbertError: no prediction belongs to these questions, one is not a string, or (2.0) one is
        missing; null_odds lacks a question; there is no answer to compare with (1.1).
    """
    _check(questions, predictions, version)
    if version == "1.1":
        return _score_answerable(questions, predictions)
    exact, f1_scores = _raw_scores(questions, predictions)
    answerable = np.array([bool(question.answers) for question in questions])
    best: dict[str, float] = {}
    columns = {"exact": exact, "f1": f1_scores}
    if null_odds is not None:
        odds = _odds_of(questions, null_odds)
        best = _best_thresholds(questions, predictions, columns, odds)
        columns = {
            name: np.where(odds > na_prob_thresh, (~answerable).astype(float), values)
            for name, values in columns.items()
        }
    result = _means(columns, np.ones_like(answerable), "")
    for prefix, chosen in (("HasAns_", answerable), ("NoAns_", ~answerable)):
        if chosen.any():
            result.update(_means(columns, chosen, prefix))
    return {**result, **best}


def find_best_thresholds(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """The thresholds of `null_odds` that score best, as the official 2.0 script finds them.

    If no threshold beats leaving every question unanswered, it is 0 by definition, whatever the
    odds; `answer_threshold` gives one that can be applied.

    Returns:
      best_exact, best_exact_thresh, best_f1 and best_f1_thresh. The question whose odds are the
      threshold is one that is answered.

    Raises:
      AlbertError: as `score`.
    """
    _check(questions, predictions, "2.0")
    exact, f1_scores = _raw_scores(questions, predictions)
    odds = _odds_of(questions, null_odds)
    return _best_thresholds(questions, predictions, {"exact": exact, "f1": f1_scores}, odds)


def answer_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> float:
    """The threshold with the best F1: answer where null_odds are at most this.

    It differs from the official best_f1_thresh where that cannot be applied: it never parts
    questions with the same odds, and lies below all odds if it is best to answer none. It lies
    halfway to the next question's odds, so that rounding decides nothing.

    Raises:
      AlbertError: as `score`.
    """
    _check(questions, predictions, "2.0")
    _, f1_scores = _raw_scores(questions, predictions)
    odds = _odds_of(questions, null_odds)
    order, totals = _totals_by_threshold(questions, predictions, f1_scores, odds)
    ranked = odds[order]
    last_of_equals = np.append(ranked[1:] != ranked[:-1], True)
    totals[1:][~last_of_equals] = -np.inf
    best = int(np.argmax(totals))
    bounds = np.concatenate([ranked[:1] - 2.0, ranked, ranked[-1:] + 2.0])
    return float(bounds[best] + bounds[best + 1]) / 2.0


def no_answer_score(questions: Sequence[Question]) -> dict[str, float]:
    """The 2.0 scores of leaving every question unanswered: the baseline to beat."""
    return score(questions, {question.id: "" for question in questions}, version="2.0")


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
                f"The prediction for question {question.id} is {shown(answer)}; a string was "
                "expected."
            )
        if version == "1.1" and not question.answers:
            raise AlbertError(f"{question.where} has no answers to compare with.")


def _odds_of(questions: Sequence[Question], null_odds: Mapping[str, float]) -> np.ndarray:
    try:
        return np.array([float(null_odds[question.id]) for question in questions])
    except KeyError as error:
        raise AlbertError(f"The null odds lack question {error.args[0]}.") from error
    except (OverflowError, TypeError, ValueError) as error:
        raise AlbertError(f"The null odds must be numbers: {shown(error, 200)}.") from error


def _score_answerable(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> dict[str, float]:
    """The official 1.1 script: an unanswered question scores 0."""
    exact = f1_sum = 0.0
    for question in questions:
        if question.id in predictions:
            prediction = predictions[question.id]
            exact += max(exact_match(prediction, answer.text) for answer in question.answers)
            f1_sum += max(f1(prediction, answer.text) for answer in question.answers)
    return {
        "exact_match": 100.0 * exact / len(questions),
        "f1": 100.0 * f1_sum / len(questions),
    }


def _raw_scores(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    """The official 2.0 script's exact match and F1 of every question, [n] each."""
    exact, f1_scores = [], []
    for question in questions:
        prediction = predictions[question.id]
        # Answers of which normalisation leaves nothing do not count.
        gold = [a.text for a in question.answers if normalize_answer(a.text)] or [""]
        exact.append(max(exact_match(prediction, text) for text in gold))
        if gold == [""]:
            f1_scores.append(float(exact[-1]))
        else:
            f1_scores.append(max(f1(prediction, text) for text in gold))
    return np.array(exact, float), np.array(f1_scores)


def _means(columns: Mapping[str, np.ndarray], chosen: np.ndarray, prefix: str) -> dict[str, float]:
    total = int(chosen.sum())
    result = {
        f"{prefix}{name}": 100.0 * sum(values[chosen].tolist()) / total
        for name, values in columns.items()
    }
    return {**result, f"{prefix}total": total}


def _totals_by_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    scores: np.ndarray,
    odds: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Questions by rising odds, [n], and total score if the first k of them are answered, [n + 1].

    An unanswerable question is right until it is answered with something.
    """
    answerable = np.array([bool(question.answers) for question in questions])
    answered = np.array([bool(predictions[question.id]) for question in questions])
    gains = np.where(answerable, scores, -answered.astype(float))
    order = np.argsort(odds, kind="stable")
    return order, np.cumsum(np.append(float((~answerable).sum()), gains[order]))


def _best_thresholds(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    columns: Mapping[str, np.ndarray],
    odds: np.ndarray,
) -> dict[str, float]:
    result = {}
    for name, scores in columns.items():
        order, totals = _totals_by_threshold(questions, predictions, scores, odds)
        best = int(np.argmax(totals))
        result[f"best_{name}"] = float(100.0 * totals[best] / len(questions))
        result[f"best_{name}_thresh"] = float(odds[order[best - 1]]) if best else 0.0
    return result
