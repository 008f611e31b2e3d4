# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The threshold on the null odds, above which a model of SQuAD 2.0 leaves a question unanswered.

The best threshold for the development data is kept beside the model, to answer other questions.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.weights.run_folder import find_checkpoint, has_checkpoint

THRESHOLDS_FILE = "thresholds.json"


class Threshold(NamedTuple):
    """A threshold on the null odds.

    Attributes:
      value: questions with higher null odds count as unanswerable.
      origin: how it was found, for the terminal.
    """

    value: float
    origin: str

    def __str__(self) -> str:
        """Returns a line for the terminal."""
        return f"Threshold on the null odds: {self.value:.4f}, {self.origin}."


#: Leaves a question unanswered if the model finds that more likely than not.
DEFAULT = Threshold(0.0, "as no evaluation of these weights has found one")


def check_threshold(version: str, threshold: float | None) -> None:
    """Checks a given threshold; None passes.

    Raises:
      AlbertError: this version of SQuAD has no unanswerable questions, or the threshold is NaN.
    """
    if threshold is None:
        return
    if version == "1.1":
        raise AlbertError(
            "`null_score_diff_threshold` is for SQuAD 2.0; in 1.1 every question has an answer. "
            "Leave it out."
        )
    if math.isnan(threshold):
        raise AlbertError("`null_score_diff_threshold`=nan is not a number.")


def load_threshold(folder: str) -> Threshold | None:
    """Reads the threshold kept beside the model in `folder`.

    Returns:
      None if there is none, or only one of other weights, from which training has gone on.

    Raises:
      AlbertError: the file is damaged.
    """
    path = os.path.join(folder, THRESHOLDS_FILE)
    if not files.exists(path):
        return None
    value = files.read_object(path, "file of thresholds")
    if value.get("checkpoint") not in (None, _checkpoint(folder)):
        return None
    try:
        return Threshold(float(value["null_threshold"]), f"found on {value['found_on']}")
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise AlbertError(f"{path} has no null_threshold; delete it and evaluate again.") from error


def _checkpoint(folder: str) -> str | None:
    """Returns the name of the weights that are used, relative to the folder; None without any."""
    return os.path.relpath(find_checkpoint(folder), folder) if has_checkpoint(folder) else None


def save_threshold(folder: str, value: float, f1: float, found_on: str) -> None:
    """Writes a threshold beside the model in `folder`, with its F1 and the data it was found on."""
    kept = {
        "null_threshold": value, "f1": f1, "found_on": found_on, "checkpoint": _checkpoint(folder)
    }  # fmt: skip
    files.write_json(os.path.join(folder, THRESHOLDS_FILE), kept)
