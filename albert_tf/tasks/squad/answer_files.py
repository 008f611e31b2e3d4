# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers as files: predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tasks.squad.answers import Answers, predictions

PREDICTIONS_FILE = "predictions.json"
_NBEST_FILE = "nbest_predictions.json"
_NULL_ODDS_FILE = "null_odds.json"
FILES = (PREDICTIONS_FILE, _NBEST_FILE, _NULL_ODDS_FILE)


def write_answers(folder: str, answers: Answers, threshold: float | None) -> str:
    """Writes the files of answers.

    Args:
      folder: folder of the files.
      answers: the answers.
      threshold: see `predictions`; None, as for 1.1, writes no null odds.

    Returns:
      The path of predictions.json.
    """
    path = os.path.join(folder, PREDICTIONS_FILE)
    files.write_json(path, predictions(answers, threshold))
    files.write_json(os.path.join(folder, _NBEST_FILE), answers.nbest)
    if threshold is not None:
        files.write_json(os.path.join(folder, _NULL_ODDS_FILE), answers.null_odds)
    return path


def read_answers(folder: str, ids: Sequence[str], *, null_odds: bool) -> Answers:
    """Reads n-best lists and, for 2.0, null odds.

    Args:
      folder: output directory of a run that has evaluated or predicted.
      ids: ids of the questions.
      null_odds: whether to read null odds.

    Raises:
      AlbertError: a file is missing or damaged, or lacks a question.
    """
    nbest = _read(folder, _NBEST_FILE, "file of answers", ids, _is_nbest)
    odds = {}
    if null_odds:
        odds = _read(folder, _NULL_ODDS_FILE, "file of null odds", ids, _is_number)
    return Answers(nbest, {name: float(value) for name, value in odds.items()})


def _read(
    folder: str, name: str, what: str, ids: Sequence[str], is_valid: Callable[[Any], bool]
) -> dict[str, Any]:
    """Reads a file's values for some questions."""
    path = os.path.join(folder, name)
    values = files.read_object(path, what)
    for question in ids:
        if question not in values:
            raise AlbertError(
                f"{path} lacks question {question}; it was made from other questions."
            )
        if not is_valid(values[question]):
            raise AlbertError(f"{path}: the entry for question {question} is damaged.")
    return {question: values[question] for question in ids}


def _is_number(value: Any) -> bool:
    # Integers of any size are valid JSON, but may not fit into a float64.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_nbest(value: Any) -> bool:
    """Whether a value is a list of answers as `write_answers` writes them."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(entry, dict)
            and isinstance(entry.get("text"), str)
            and all(type(entry.get(name)) is int for name in ("start", "end"))
            and _is_number(entry.get("probability"))
            and 0 <= entry["probability"] <= 1
            for entry in value
        )
    )
