# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions as a TSV table: id, prediction and probabilities of each example."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown
from albert_tf.io.text_tables import read_tsv

PREDICTIONS_FILE = "predictions.tsv"
#: Rounding in a file may move the sum of a row's probabilities by this much.
_SUM_TOLERANCE = 1e-3


def write_predictions(
    path: str, ids: Iterable[str], values: np.ndarray, labels: Sequence[str]
) -> None:
    """Writes a TSV file: id, prediction and, if there are labels, the probability of each.

    Args:
      path: of the file.
      ids: of n examples.
      values: float [n, labels], probabilities; without labels [n], the predictions themselves.
      labels: the classes; empty for regression.
    """
    rows = [["id", "prediction", *labels]]
    for id_, value in zip(ids, values):
        probabilities = [f"{p:.6f}" for p in value] if labels else []
        rows.append([id_, labels[value.argmax()] if labels else f"{value:.6f}", *probabilities])
    files.write_text(path, "".join("\t".join(map(_cell, row)) + "\n" for row in rows))


def read_predictions(
    path: str, ids: Sequence[str], labels: Sequence[str], what: str, advice: str
) -> np.ndarray:
    """Reads a file written by `write_predictions`.

    Args:
      path: of the file.
      ids: of the expected examples, in order.
      labels: as when it was written.
      what: names the expected examples in errors.
      advice: what to do about predictions for other examples, for errors.

    Returns:
      Float64 [n, labels], or [n] without labels.

    Raises:
      AlbertError: it has predictions for other examples or labels, or a row is damaged.
    """
    columns = ["id", "prediction", *map(_cell, labels)]
    rows = read_tsv(path)
    number, header = next(rows, (1, []))
    if header != columns:
        raise AlbertError(
            f"{path}:{number}: these are not predictions for {what}: the columns should be "
            f"{', '.join(columns)}."
        )
    values = []
    for number, fields in rows:
        where = f"{path}:{number}"
        if len(fields) != len(columns):
            raise AlbertError(f"{where}: {len(fields)} fields instead of {len(columns)}.")
        if len(values) < len(ids) and fields[0] != _cell(ids[len(values)]):
            raise AlbertError(
                f"{where}: the id is {shown(fields[0])} instead of {shown(ids[len(values)])}; "
                f"{advice}."
            )
        values.append(_probabilities(fields[2:], where) if labels else _value(fields[1], where))
    if len(values) != len(ids):
        raise AlbertError(
            f"{path} has {len(values):,} predictions, but {what} has {len(ids):,} examples."
        )
    return np.array(values)


def _probabilities(fields: Sequence[str], where: str) -> list[float]:
    values = [_number(field, where) for field in fields]
    if not (all(value >= 0 for value in values) and abs(sum(values) - 1) < _SUM_TOLERANCE):
        raise AlbertError(f"{where}: the prediction is not probabilities that sum to 1.")
    return values


def _value(field: str, where: str) -> float:
    value = _number(field, where)
    if not math.isfinite(value):
        raise AlbertError(f"{where}: the prediction is not a finite number.")
    return value


def _number(field: str, where: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise AlbertError(f"{where}: a prediction is not a number.") from None


def _cell(text: str) -> str:
    """Returns a text without the tabs and line ends that would break the table."""
    return " ".join(text.split())
