# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The threshold on the null odds that is kept beside a model.

A model of SQuAD 2.0 leaves a question unanswered if its null odds are above a threshold. The one
that is best for the development data is kept, for questions whose answers are not known.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files

THRESHOLDS_FILE = "thresholds.json"


class Threshold(NamedTuple):
    """A threshold on the null odds.

    Attributes:
      value: of null odds, above which a question counts as unanswerable.
      origin: where it comes from, for the terminal.
    """

    value: float
    origin: str

    def __str__(self) -> str:
        """A line for the terminal."""
        return f"Threshold on the null odds: {self.value:.4f}, {self.origin}."


#: No answer wins if the model holds it the likelier.
DEFAULT = Threshold(0.0, "as no evaluation has found one")


def load_threshold(folder: str) -> Threshold | None:
    """The threshold kept beside the model in `folder`; None if there is none.

    Raises:
      AlbertError: the file is damaged.
    """
    path = os.path.join(folder, THRESHOLDS_FILE)
    if not tf.io.gfile.exists(path):
        return None
    value = files.read_object(path, "file of thresholds")
    try:
        return Threshold(float(value["null_threshold"]), f"found on {value['found_on']}")
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise AlbertError(f"{path} holds no null_threshold; delete it, evaluate again.") from error


def save_threshold(folder: str, value: float, f1: float, found_on: str) -> None:
    """Keeps a threshold beside the model in `folder`, with the F1 that it gives."""
    kept = {"null_threshold": value, "f1": f1, "found_on": found_on}
    files.write_json(os.path.join(folder, THRESHOLDS_FILE), kept)
