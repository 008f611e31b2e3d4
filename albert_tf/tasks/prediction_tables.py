# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions as a TSV table: id or number, prediction and probabilities of each example.

Numbered examples have their texts, too, before the prediction.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.text_tables import Label, label_text, read_tsv

#: The file of predictions in an output directory, and the folder of those of several data sets.
PREDICTIONS_FILE, PREDICTIONS = "predictions.tsv", "predictions"
#: Rounding in a file may move the sum of a row's probabilities by this much.
_SUM_TOLERANCE = 1e-3
_PREDICTION = "prediction"


class Predictions(NamedTuple):
    """A table of predictions.

    `values` are probabilities, float64 [n, labels], or without labels [n] the predictions
    themselves; `texts` are columns by name.
    """

    ids: list[str]
    labels: list[str]
    values: np.ndarray
    texts: dict[str, tuple[str, ...]]


def find_predictions(folder: str) -> list[str]:
    """Returns the paths of the tables in an output directory, or in a folder of several."""
    patterns = PREDICTIONS_FILE, f"{PREDICTIONS}/*.tsv", f"*/{PREDICTIONS}/*.tsv"
    return [path for x in patterns for path in storage.glob(os.path.join(folder, x))]


def write_predictions(
    path: str,
    ids: Iterable[str],
    values: np.ndarray,
    labels: Sequence[Label],
    texts: Mapping[str, Sequence[str]] = {},
) -> None:
    """Writes a TSV file: id, `texts`, prediction and, if there are labels, their probabilities."""
    values, labels = np.reshape(values, [-1, len(labels) or 1]), [*map(label_text, labels)]
    rows = [["id", *texts, _PREDICTION, *labels]]
    for number, (id_, value) in enumerate(zip(ids, values)):
        row = [id_, *(column[number] for column in texts.values())]
        numbers = [f"{number:.6f}" for number in value]
        rows.append([*row, *([labels[value.argmax()]] if labels else ()), *numbers])
    files.write_text(path, "".join("\t".join(map(_cell, row)) + "\n" for row in rows))


def read_predictions(path: str) -> Predictions:
    """Reads a file written by `write_predictions`.

    Raises:
      AlbertError: it is another file, has no rows, or a row is damaged.
    """
    rows = ((number, fields) for number, fields in read_tsv(path) if any(fields))
    number, header = next(rows, (1, []))
    if header[:1] != ["id"] or _PREDICTION not in header:
        raise AlbertError(
            f"{path}:{number}: there are no predictions here; the columns should be id and "
            "prediction, perhaps with texts between them."
        )
    first = header.index(_PREDICTION) + 1
    ids, labels, texts, values = [], header[first:], [], []
    for number, fields in rows:
        where = f"{path}:{number}"
        if len(fields) != len(header):
            raise AlbertError(f"{where}: {len(fields)} fields instead of {len(header)}.")
        try:
            row = [float(field) for field in fields[first if labels else first - 1 :]]
        except ValueError:
            raise AlbertError(f"{where}: a prediction is not a number.") from None
        if labels and not (min(row) >= 0 and abs(sum(row) - 1) < _SUM_TOLERANCE):
            raise AlbertError(f"{where}: the prediction is not probabilities that sum to 1.")
        if not math.isfinite(sum(row)):
            raise AlbertError(f"{where}: the prediction is not a finite number.")
        ids.append(fields[0])
        texts.append(fields[1 : first - 1])
        values.append(row if labels else row[0])
    if not ids:
        raise AlbertError(f"{path} has no predictions.")
    return Predictions(ids, labels, np.array(values), dict(zip(header[1:], zip(*texts))))


def _cell(text: str) -> str:
    """Returns a text without the tabs and line ends that would break the table."""
    return " ".join(text.split())
