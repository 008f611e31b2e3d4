# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact match, F1 and the threshold for "no answer", equal to SQuAD's official evaluation scripts.

Sums run in the official order, so that the scores are equal to the last digit.
"""

from __future__ import annotations

import collections
import functools
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import shown
from albert_tf.tasks.squad.answers import Answers, predictions
from albert_tf.tasks.squad.data import Question

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
    if version == "1.1":
        return _score_answerable(questions, predictions)
    raw = _RawScores.of(questions, predictions, null_odds)
    columns = {"exact": raw.exact, "f1": raw.f1}
    best: dict[str, float] = {}
    if raw.odds is not None:
        best = raw.best_thresholds()
        unanswered = (~raw.answerable).astype(float)
        columns = {
            name: np.where(raw.odds > na_prob_thresh, unanswered, values)
            for name, values in columns.items()
        }
    result = _means(columns, np.ones_like(raw.answerable), "")
    for prefix, selected in (("HasAns_", raw.answerable), ("NoAns_", ~raw.answerable)):
        if selected.any():
            result.update(_means(columns, selected, prefix))
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
    return _RawScores.of(questions, predictions, null_odds).best_thresholds()


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
    raw = _RawScores.of(questions, predictions, null_odds)
    order, totals = raw.totals_by_threshold(raw.f1)
    ranked = raw.odds[order]
    last_of_equals = np.append(ranked[1:] != ranked[:-1], True)
    totals[1:][~last_of_equals] = -np.inf
    best = int(np.argmax(totals))
    bounds = np.concatenate([ranked[:1] - 2.0, ranked, ranked[-1:] + 2.0])
    return float(bounds[best] + bounds[best + 1]) / 2.0


def no_answer_score(questions: Sequence[Question]) -> dict[str, float]:
    """Returns the 2.0 scores of leaving every question unanswered, a baseline."""
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
    """Scores as the official 1.1 script does: an unanswered question scores 0."""
    _check(questions, predictions, "1.1")
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


class _RawScores(NamedTuple):
    """Scores of n questions before a threshold, as in the official 2.0 script.

    Attributes:
      exact, f1: float64 [n].
      answerable: bool [n], whether the question has a gold answer.
      answered: bool [n], whether the prediction is not empty.
      odds: float64 [n], the null odds, or None.
    """

    exact: np.ndarray
    f1: np.ndarray
    answerable: np.ndarray
    answered: np.ndarray
    odds: np.ndarray | None

    @classmethod
    def of(
        cls,
        questions: Sequence[Question],
        predictions: Mapping[str, str],
        null_odds: Mapping[str, float] | None,
    ) -> _RawScores:
        _check(questions, predictions, "2.0")
        exact, f1_scores = [], []
        for question in questions:
            prediction = predictions[question.id]
            # Answers that are empty after normalization do not count.
            gold = [a.text for a in question.answers if normalize_answer(a.text)] or [""]
            exact.append(max(exact_match(prediction, text) for text in gold))
            if gold == [""]:
                f1_scores.append(float(exact[-1]))
            else:
                f1_scores.append(max(f1(prediction, text) for text in gold))
        return cls(
            np.array(exact, float),
            np.array(f1_scores),
            np.array([bool(question.answers) for question in questions]),
            np.array([bool(predictions[question.id]) for question in questions]),
            None if null_odds is None else _odds_of(questions, null_odds),
        )

    def totals_by_threshold(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sorts questions by odds, [n]; sums the scores if the first k are answered, [n + 1].

        An unanswerable question is right until it is answered.
        """
        gains = np.where(self.answerable, scores, -self.answered.astype(float))
        order = np.argsort(self.odds, kind="stable")
        none_answered = float((~self.answerable).sum())
        return order, np.cumsum(np.append(none_answered, gains[order]))

    def best_thresholds(self) -> dict[str, float]:
        """See `find_best_thresholds`."""
        result = {}
        for name, scores in (("exact", self.exact), ("f1", self.f1)):
            order, totals = self.totals_by_threshold(scores)
            best = int(np.argmax(totals))
            result[f"best_{name}"] = float(100.0 * totals[best] / len(scores))
            result[f"best_{name}_thresh"] = float(self.odds[order[best - 1]]) if best else 0.0
        return result


def _means(
    columns: Mapping[str, np.ndarray], selected: np.ndarray, prefix: str
) -> dict[str, float]:
    total = int(selected.sum())
    result = {
        f"{prefix}{name}": 100.0 * sum(values[selected].tolist()) / total
        for name, values in columns.items()
    }
    return {**result, f"{prefix}total": total}
