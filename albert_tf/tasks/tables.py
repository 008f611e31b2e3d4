# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of texts with labels, and of predictions.

Predictions are a TSV table: id or number, prediction and probabilities of each example. Numbered
examples have their texts, too, before the prediction.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.log import log
from albert_tf.io.text_tables import (
    Label,
    class_labels,
    is_path,
    label_text,
    read_rows,
    read_tsv,
    table_kind,
)
from albert_tf.weights.run_folder import RunFolder

#: The file of predictions in an output directory, and the folder of those of several data sets.
PREDICTIONS_FILE, PREDICTIONS = "predictions.tsv", "predictions"
#: A row of a table by column; and the labels of a text: one, any number of them, or unknown.
Row = Mapping[str, Any]
Labels = Union[Label, tuple[Label, ...], None]
#: Rounding in a file may move the sum of a row's probabilities by this much.
_SUM_TOLERANCE = 1e-3
_PREDICTION = "prediction"
#: A text that CSV quotes because there are quotes in it.
_QUOTED = re.compile('"[^"]*(?:""[^"]*)+"')


@dataclasses.dataclass(frozen=True)
class TextColumns:
    """The columns of a table (keys of a JSON line) to read.

    `text_pair` is None for single texts, `label` to read no labels, `id` to read no ids. With a
    `label_separator`, a cell of labels holds any number of them.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    id: str | None = None
    label_separator: str | None = None

    def __post_init__(self) -> None:
        """Raises AlbertError if two of text, second text and label are the same column."""
        names = [name for name in (self.text, self.text_pair, self.label) if name is not None]
        if len({*names}) < len(names):
            raise AlbertError(
                f"The texts and the label are in the columns {joined(names)}; name different ones."
            )


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A row.

    `id` and `label` are None if there are none, and `label` is a tuple if there may be several;
    `where` is "file:line", for errors.
    """

    id: str | None
    text: str
    text_pair: str | None
    label: Labels
    where: str


def read_texts(data: Any, columns: TextColumns, name: str = "", **layout: Any) -> list[TextExample]:
    """Reads texts from a table or from memory; for `data`, `name` and `layout` see `read_rows`.

    The numbers of a `ClassLabel` column of a `datasets.Dataset` become the names of the classes,
    and -1, which stands for no label, None.

    Raises:
      AlbertError: as `read_rows`; or a column is missing, or an id is repeated.
    """
    kind = table_kind(str(data)) if is_path(data) else None
    names = class_labels(data, columns.label)
    examples = []

    def name_of(label) -> Any:
        if isinstance(label, list):
            return [*map(name_of, label)]
        is_number = isinstance(label, int) and -1 <= label < len(names)
        return [*names, None][label] if is_number else label

    for where, row in read_rows(data, name, **layout):
        for column in ("text", "label") if name == "train" else ():
            # Of a name that nobody has chosen.
            if getattr(columns, column) == column and column not in row:
                raise AlbertError(
                    f"{where}: there is no column {column!r}; there are {joined(row)}; name one by "
                    f"`{column}`."
                )
        if names and columns.label in row:
            row[columns.label] = name_of(row[columns.label])
        examples.append(
            TextExample(
                id=_name(row, columns.id, where) if columns.id else None,
                text=_field(row, columns.text, where),
                text_pair=_field(row, columns.text_pair, where) if columns.text_pair else None,
                label=_labels(row, columns, where, kind) if columns.label else None,
                where=where,
            )
        )
    if kind == "tsv":
        _note_quotes(data, examples)
    return with_distinct_ids(examples)


def with_distinct_ids(examples: list[Any]) -> list[Any]:
    """Returns examples; raises AlbertError if two have the same `id`, unless it is None."""
    places = {}
    for example in examples:
        first = places.setdefault(example.id, example.where)
        if first != example.where and example.id is not None:
            raise AlbertError(
                f"{example.where}: the id {short_repr(example.id)} was used at {first} already; "
                "each must be unique, to name its prediction."
            )
    return examples


def with_labels(examples: Sequence[Any]) -> list[Any]:
    """Leaves out training examples without a label, or tags, and says how many there are.

    Examples of tasks without labels are all kept.

    Raises:
      AlbertError: none of them has a label.
    """
    labels = [getattr(x, "label", getattr(x, "tags", "")) for x in examples]
    if all(label in (None, ()) for label in labels):
        raise AlbertError("None of the examples to train on has a label.")
    kept = [x for x, label in zip(examples, labels) if label is not None]
    if missing := len(examples) - len(kept):
        log.info(f"train: {missing:,} of {len(examples):,} rows have no label and are left out.")
    return kept


def _note_quotes(path: str, examples: Sequence[TextExample]) -> None:
    """Warns if most of the texts with quotes look like cells of CSV."""
    texts = (text for x in examples for text in (x.text, x.text_pair) if text and '"' in text)
    kinds = collections.Counter(bool(_QUOTED.fullmatch(text)) for text in texts)
    if kinds[True] > kinds[False]:
        log.warning(
            f"{path}: {kinds[True]:,} texts are quoted as in CSV, and are read with these quotes, "
            "as in GLUE's files; save the table as .csv, or with quoting=csv.QUOTE_NONE."
        )


def _field(row: Row, column: str, where: str) -> str:
    if column not in row:
        raise AlbertError(f"{where}: there is no column {column!r}; there are {joined(row)}.")
    value = row[column]
    if isinstance(value, (str, bool, int, float)) and value not in (math.inf, -math.inf):
        try:
            return label_text(value)
        except ValueError as error:  # Python writes no integers of thousands of digits.
            raise AlbertError(f"{where}: the number in {column!r} is too long.") from error
    raise AlbertError(f"{where}: {column!r} must be a string or a number, not {short_repr(value)}.")


def _labels(row: Row, columns: TextColumns, where: str, kind: str | None) -> Labels:
    """Returns the label of a row, see `_label`; several from a list, or with a separator."""
    column, separator, value = columns.label, columns.label_separator, row.get(columns.label)
    if separator and column in row and not isinstance(value, list):
        parts = value.split(separator) if isinstance(value, str) else [value]
        value = [part for part in parts if part is not None and str(part).strip()]
    if not isinstance(value, list):
        return _label(row, column, where, kind)
    found = [_label({column: part}, column, where, kind) for part in value]
    if None in found or len({*map(label_text, found)}) < len(found):
        raise AlbertError(
            f"{where}: a label is missing or repeated in {column!r}, {short_repr(value)}; give a "
            "list of the labels that the text has."
        )
    return tuple(found)


def _label(row: Row, column: str, where: str, kind: str | None) -> Label | None:
    """Returns a label in its own type; None for a missing or blank one.

    In a table of texts, a number is what is written as Python writes it: 1 and 1.5, but neither 01
    nor 1.50, which may be the names of something.
    """
    if row.get(column, "") is None:
        return None
    text, value = _name(row, column, where).strip(), row[column]
    if not isinstance(value, str):
        return value
    if kind in ("tsv", "csv") and text.lstrip("-")[:1].isdigit():
        for number in (int, float):
            with contextlib.suppress(ValueError):
                if repr(number(text)) == text:
                    return number(text)
    return text or None


def _name(row: Row, column: str, where: str) -> str:
    """Returns a label or an ID as text. Models and predictions hold them, so they must be exact."""
    name = _field(row, column, where)
    if not files.is_valid_text(name):
        raise AlbertError(
            f"{where}: {column!r} is {short_repr(name)}, with half of a surrogate pair, which no "
            "file can hold; replace that character."
        )
    return name


class Predictions(NamedTuple):
    """A table of predictions.

    `columns` are the ids and perhaps texts, by name; `values` are probabilities, float64
    [n, labels], or without labels [n] the predictions themselves.
    """

    columns: dict[str, tuple[str, ...]]
    labels: list[str]
    values: np.ndarray


def find_predictions(folder: str) -> list[str]:
    """Returns the paths of the tables in an output directory, or in a folder of several."""
    patterns = PREDICTIONS_FILE, f"{PREDICTIONS}/*.tsv", f"*/{PREDICTIONS}/*.tsv"
    return [path for x in patterns for path in storage.glob(os.path.join(folder, x))]


def write_table(
    folder: RunFolder,
    name: str,
    examples: Sequence[Any],
    values: np.ndarray,
    labels: Sequence[Label],
    chosen: np.ndarray | None = None,
) -> None:
    """Writes predictions.tsv; for a data set of a name of its own, predictions/<name>.tsv.

    Texts without an id are numbered from 0 and repeated there. For `values`, `labels` and
    `chosen` see `write_predictions`.
    """
    path = folder.file(PREDICTIONS_FILE)
    if name != "predict":
        path = folder.file(PREDICTIONS, f"{name}.tsv")
    columns = {"id": [example.id for example in examples]}
    if None in columns["id"]:
        columns = {"id": map(str, range(len(examples)))}
        columns["text"] = [example.text for example in examples]
        if examples[0].text_pair is not None:
            columns["second_text"] = [example.text_pair for example in examples]
    write_predictions(path, columns, values, labels, chosen)
    log.info(f"Predictions for {len(examples):,} examples are in {path}.")


def write_predictions(
    path: str,
    columns: Mapping[str, Iterable[str]],
    values: np.ndarray,
    labels: Sequence[Label],
    chosen: np.ndarray | None = None,
) -> None:
    """Writes a TSV file: the columns, prediction and, if there are labels, their probabilities.

    The prediction is the label of the highest probability, or those that are `chosen`, bool
    [n, labels], with "|" between them.
    """
    values, labels = np.reshape(values, [-1, len(labels) or 1]), [*map(label_text, labels)]
    if chosen is None:
        chosen = np.eye(values.shape[1], dtype=bool)[values.argmax(axis=1)]
    rows = [[*columns, _PREDICTION, *labels]]
    for *row, value, own in zip(*columns.values(), values, chosen):
        names = ["|".join(itertools.compress(labels, own))] if labels else []
        rows.append([*row, *names, *(f"{number:.6f}" for number in value)])
    # Tabs and line ends in texts would break the table.
    lines = ("\t".join(" ".join(text.split()) for text in row) for row in rows)
    files.write_text(path, "".join(f"{line}\n" for line in lines))


def read_predictions(path: str) -> Predictions:
    """Reads a file written by `write_predictions`.

    Raises:
      AlbertError: it is another file, has no rows, or a row is damaged.
    """
    rows = (row for row in read_tsv(path) if any(row[1]))
    number, header = next(rows, (1, []))
    if header[:1] != ["id"] or _PREDICTION not in header:
        raise AlbertError(
            f"{path}:{number}: there are no predictions here; the columns should be id and "
            "prediction, perhaps with texts between them."
        )
    first = header.index(_PREDICTION)
    labels, columns, values = header[first + 1 :], [], []
    for number, fields in rows:
        try:
            row = [float(field) for field in fields[first + bool(labels) :]]
        except ValueError:
            row = []
        valid = row and len(fields) == len(header) and math.isfinite(sum(row))
        if not valid or (labels and abs(sum(row) - 1) > _SUM_TOLERANCE):
            raise AlbertError(
                f"{path}:{number}: the prediction is damaged; it should be a number, or "
                "probabilities that sum to 1 (those of several labels are not averaged)."
            )
        columns.append(fields[:first])
        values.append(row if labels else row[0])
    if not values:
        raise AlbertError(f"{path} has no predictions.")
    return Predictions(dict(zip(header, zip(*columns))), labels, np.array(values))
