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

import numpy as np

from albert_tf.tasks.squad.data import Answers, Question, predictions

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text: str) -> str:
    """Converts to lower case; removes ASCII punctuation, articles and redundant white space."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


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
      questions, version: see `score`.
      answers: to these questions.
      threshold: for 2.0, null odds above which a question counts as unanswerable; None for the
        value with the best F1 on these questions.

    Returns:
      The official metrics; for 2.0 also those of `find_best_thresholds`, the `null_threshold` that
      was applied, and `all_null_f1`, the F1 of leaving every question unanswered.
    """
    best_answers = predictions(answers, None)
    if version == "1.1":
        return score(questions, best_answers, version="1.1")
    best = find_best_thresholds(questions, best_answers, answers.null_odds)
    if threshold is not None:
        best["null_threshold"] = threshold
    return {
        **score(questions, predictions(answers, best["null_threshold"]), version="2.0"),
        **best,
        "all_null_f1": score(questions, dict.fromkeys(best_answers, ""), version="2.0")["f1"],
    }


def score(
    questions: Sequence[Question], predictions: Mapping[str, str], *, version: str
) -> dict[str, float]:
    """Scores predictions in percent.

    Args:
      questions: questions with gold answers; in 2.0 a question without any is unanswerable.
      predictions: an answer to each by its id; "" for no answer.
      version: "1.1" or "2.0".

    Returns:
      1.1: exact_match and f1. 2.0: exact, f1 and total, and the same with HasAns_ and NoAns_ for
      answerable and unanswerable questions.
    """
    columns = _scores(questions, predictions, version)
    groups = {"": np.ones(len(questions), bool)}
    if version == "1.1":
        columns = {"exact_match": columns["exact"], "f1": columns["f1"]}
    else:
        answerable = _answerable(questions)
        groups |= {"HasAns_": answerable, "NoAns_": ~answerable}
    result = {}
    for prefix, chosen in groups.items():
        if total := int(chosen.sum()):
            for name, values in columns.items():
                result[prefix + name] = 100.0 * sum(values[chosen].tolist()) / total
            if version == "2.0":
                result[f"{prefix}total"] = total
    return result


def find_best_thresholds(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """Finds the thresholds of `null_odds` with the best scores.

    The official ones are null odds of a question, which is still answered; 0 by definition if no
    threshold beats leaving every question unanswered. `null_threshold` can always be applied: it
    never separates questions with equal odds, and is below all odds if no answer is best. It lies
    halfway to the next question's odds, so that rounding does not matter.

    Returns:
      best_exact, best_exact_thresh, best_f1 and best_f1_thresh, as the official 2.0 script finds
      them, and `null_threshold`, with the best F1.
    """
    columns, answerable = _scores(questions, predictions, "2.0"), _answerable(questions)
    answered = np.array([bool(predictions[question.id]) for question in questions])
    odds = np.array([null_odds[question.id] for question in questions])
    order = np.argsort(odds, kind="stable")
    odds, result = odds[order], {}
    for name, scores in columns.items():
        # The sum if the first k are answered; an unanswerable one is right until it is answered.
        gains = np.where(answerable, scores, -answered.astype(float))[order]
        totals = np.cumsum(np.append(float((~answerable).sum()), gains))
        best = int(np.argmax(totals))
        result[f"best_{name}"] = float(100.0 * totals[best] / len(questions))
        result[f"best_{name}_thresh"] = float(odds[best - 1]) if best else 0.0
    separates = np.append(False, odds[1:] == odds[:-1])
    totals[:-1][separates] = -np.inf
    best = int(np.argmax(totals))
    bounds = np.concatenate([odds[:1] - 2.0, odds, odds[-1:] + 2.0])
    return {**result, "null_threshold": float(bounds[best] + bounds[best + 1]) / 2.0}


def _answerable(questions: Sequence[Question]) -> np.ndarray:
    return np.array([bool(question.answers) for question in questions])


def _scores(
    questions: Sequence[Question], predictions: Mapping[str, str], version: str
) -> dict[str, np.ndarray]:
    """Returns the scores `exact` and `f1` of each question, without a threshold, float64 [n]."""
    exact, f1_scores = [], []
    for question in questions:
        prediction, gold = predictions[question.id], [answer.text for answer in question.answers]
        if version == "2.0":  # Gold answers that are empty after normalization do not count.
            gold = [text for text in gold if normalize_answer(text)] or [""]
        exact.append(float(normalize_answer(prediction) in map(normalize_answer, gold)))
        overlap = exact[-1] if gold == [""] else max(f1(prediction, text) for text in gold)
        f1_scores.append(overlap)
    return {"exact": np.array(exact), "f1": np.array(f1_scores)}
