# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions as a table: a row an example, with its id, the answer and what it was chosen by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown
from albert_tf.io.text_files import read_lines

PREDICTIONS_FILE = "predictions.tsv"
#: Rounding in a file may move the sum of a row's probabilities by this much.
_SUM_TOLERANCE = 1e-3


def write_predictions(
    path: str, ids: Iterable[str], values: np.ndarray, labels: Sequence[str]
) -> None:
    """Writes a TSV file: id, prediction and, where there are labels, the probability of each.

    Args:
      path: of the file.
      ids: of n examples.
      values: float [n, labels], probabilities; without labels [n], the predictions themselves.
      labels: what there is to choose from; none for regression.
    """
    rows = [["id", "prediction", *labels]]
    for id_, value in zip(ids, values):
        probabilities = [f"{p:.6f}" for p in value] if labels else []
        rows.append([id_, labels[value.argmax()] if labels else f"{value:.6f}", *probabilities])
    files.write_text(path, "".join("\t".join(map(_cell, row)) + "\n" for row in rows))


def read_predictions(
    path: str, ids: Sequence[str], labels: Sequence[str], what: str, advice: str
) -> np.ndarray:
    """Reads what `write_predictions` has written.

    Args:
      path: of the file.
      ids: of the examples that it should be about, in order.
      labels: as when it was written.
      what: names the examples, for errors.
      advice: likewise, for predictions of other examples.

    Returns:
      Float64 [n, labels], or [n] without labels.

    Raises:
      AlbertError: it is about other examples or labels, or a row is damaged.
    """
    columns = ["id", "prediction", *map(_cell, labels)]
    table: list[list[float]] = []
    for number, line in enumerate(read_lines(path), start=1):
        fields, where = line.split("\t"), f"{path}:{number}"
        if number == 1:
            if fields != columns:
                raise AlbertError(
                    f"{where}: these are no predictions for {what}: the columns should be "
                    f"{', '.join(columns)}."
                )
            continue
        if len(fields) != len(columns):
            raise AlbertError(f"{where}: {len(fields)} fields instead of {len(columns)}.")
        if len(table) < len(ids) and fields[0] != _cell(ids[len(table)]):
            raise AlbertError(
                f"{where}: the id is {shown(fields[0])} instead of {shown(ids[len(table)])}; "
                f"{advice}."
            )
        try:
            table.append([float(field) for field in fields[2 if labels else 1 :]])
        except ValueError:
            raise AlbertError(f"{where}: a prediction is not a number.") from None
    if len(table) != len(ids):
        raise AlbertError(
            f"{path} has {len(table):,} predictions, but {what} has {len(ids):,} examples."
        )
    values = np.array(table)
    if labels:
        bad = (values < 0).any(axis=1) | ~(np.abs(values.sum(axis=1) - 1) < _SUM_TOLERANCE)
    else:
        values = values[:, 0]
        bad = ~np.isfinite(values)
    if bad.any():
        kind = "probabilities that sum to 1" if labels else "a finite number"
        raise AlbertError(f"{path}:{int(bad.argmax()) + 2}: the prediction is not {kind}.")
    return values


def _cell(text: str) -> str:
    """A text without tabs and line ends, which would break the table."""
    return " ".join(text.split())
