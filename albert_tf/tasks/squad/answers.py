# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions, with the odds that there is none, and their files.

Source: google-research/albert squad_utils.write_predictions_v1 and _v2.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files

PREDICTIONS_FILE = "predictions.json"
_NBEST_FILE = "nbest_predictions.json"
_NULL_ODDS_FILE = "null_odds.json"
FILES = (PREDICTIONS_FILE, _NBEST_FILE, _NULL_ODDS_FILE)


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers by question id.

    Attributes:
      nbest: the best answers, with different texts, best first; each a dict of text, probability
        (softmax of the scores in the list), start and end (characters of the context, end
        exclusive) and score.
      null_odds: a logit: the larger, the more likely the question is unanswerable; none for 1.1.
    """

    nbest: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    null_odds: dict[str, float] = dataclasses.field(default_factory=dict)


def predictions(answers: Answers, threshold: float | None) -> dict[str, str]:
    """Returns the best answer to every question, or "" if its null odds exceed the threshold.

    Args:
      answers: answers from `extract_answers`.
      threshold: None answers every question.
    """
    return {
        name: nbest[0]["text"] if threshold is None or answers.null_odds[name] <= threshold else ""
        for name, nbest in answers.nbest.items()
    }


def write_answers(folder: str, answers: Answers, threshold: float | None) -> str:
    """Writes the files of answers; returns the path of predictions.json.

    Args:
      folder: folder of the files.
      answers: the answers.
      threshold: see `predictions`.
    """
    path = os.path.join(folder, PREDICTIONS_FILE)
    files.write_json(path, predictions(answers, threshold))
    files.write_json(os.path.join(folder, _NBEST_FILE), answers.nbest)
    if answers.null_odds:
        files.write_json(os.path.join(folder, _NULL_ODDS_FILE), answers.null_odds)
    return path


def read_answers(folder: str) -> Answers:
    """Reads n-best lists and, if there are some, null odds.

    Raises:
      AlbertError: a file is missing or damaged.
    """
    path = os.path.join(folder, _NBEST_FILE)
    nbest = files.read_object(path, "file of answers")
    _check(path, nbest, _is_nbest)
    path = os.path.join(folder, _NULL_ODDS_FILE)
    odds = files.read_object(path, "file of null odds") if files.exists(path) else {}
    # Integers of any size are valid JSON, but may not fit into a float64.
    _check(path, odds, lambda x: type(x) in (int, float) and abs(x) <= sys.float_info.max)
    return Answers(nbest, odds)


def _check(path: str, values: Mapping[str, Any], is_valid: Callable[[Any], bool]) -> None:
    for question, value in values.items():
        if not is_valid(value):
            raise AlbertError(f"{path}: the entry for question {question} is damaged.")


def _is_nbest(entries: Any) -> bool:
    try:
        return bool(entries) and all(
            isinstance(entry["text"], str)
            and type(entry["start"]) is type(entry["end"]) is int
            and 0 <= entry["probability"] <= 1
            for entry in entries
        )
    except (KeyError, TypeError):
        return False
