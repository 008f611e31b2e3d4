# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers as files: predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tasks.squad.answers import Answers, predictions

PREDICTIONS_FILE = "predictions.json"
_NBEST_FILE = "nbest_predictions.json"
_NULL_ODDS_FILE = "null_odds.json"
FILES = (PREDICTIONS_FILE, _NBEST_FILE, _NULL_ODDS_FILE)


def write_answers(folder: str, answers: Answers, threshold: float | None) -> str:
    """Writes the answers' files.

    Args:
      folder: where they go.
      answers: by question id.
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


def read_answers(folder: str, names: Iterable[str], *, null_odds: bool) -> Answers:
    """Reads n-best lists back, and null odds if they are wanted.

    Args:
      folder: of a run that has evaluated or predicted.
      names: ids of the questions wanted.
      null_odds: read them too, as 2.0 has them.

    Raises:
      AlbertError: a file is missing or damaged, or lacks a question.
    """
    nbest_path = os.path.join(folder, _NBEST_FILE)
    nbest = files.read_object(nbest_path, "file of answers")
    odds_path = os.path.join(folder, _NULL_ODDS_FILE)
    odds = files.read_object(odds_path, "file of null odds") if null_odds else {}
    names = list(names)
    checks = [(nbest_path, nbest, _is_nbest)]
    checks += [(odds_path, odds, _is_number)] if null_odds else []
    for path, found, is_right in checks:
        for name in names:
            if name not in found:
                raise AlbertError(
                    f"{path} lacks question {name}; it was made from other questions."
                )
            if not is_right(found[name]):
                raise AlbertError(f"{path}: what it has for question {name} is damaged.")
    return Answers(
        {name: nbest[name] for name in names},
        {name: float(odds[name]) for name in names} if null_odds else {},
    )


def _is_number(value: Any) -> bool:
    # Whole numbers of JSON have no bounds, those of a float64 have.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_nbest(value: Any) -> bool:
    """Whether it is a list of answers, of which each has what it is told by."""
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
