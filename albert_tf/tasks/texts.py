# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts and pairs of texts with labels, from tables or data in memory."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io.files import is_valid_text
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.log import log
from albert_tf.io.text_tables import (
    Label,
    class_labels,
    is_path,
    label_text,
    read_rows,
    table_kind,
)

#: A text that CSV quotes because there are quotes in it.
_QUOTED = re.compile('"[^"]*(?:""[^"]*)+"')


@dataclasses.dataclass(frozen=True)
class TextColumns:
    """The columns of a table (keys of a JSON line) to read.

    `text_pair` is None for single texts, `label` to read no labels, `id` to read no ids.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        """Raises AlbertError if two of text, second text and label are the same column."""
        names = [name for name in (self.text, self.text_pair, self.label) if name is not None]
        if len({*names}) < len(names):
            raise AlbertError(
                f"The texts and the label are in the columns {joined(names)}; name different ones."
            )


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A row. `id` and `label` are None if there are none; `where` is "file:line", for errors."""

    id: str | None
    text: str
    text_pair: str | None
    label: Label | None
    where: str


def read_texts(data: Any, columns: TextColumns, name: str = "", **layout: Any) -> list[TextExample]:
    """Reads texts from a table or from memory; for `data`, `name` and `layout` see `read_rows`.

    The numbers of a `ClassLabel` column of a `datasets.Dataset` become the names of the classes,
    and -1, which stands for no label, None.

    Raises:
      AlbertError: as `read_rows`; or a column is missing, or an id is repeated.
    """
    kind = table_kind(str(data)) if is_path(data) else None
    names = class_labels(data).get(columns.label, ())
    examples = []
    for where, row in read_rows(data, name, **layout):
        label = row.get(columns.label, "")
        if names and isinstance(label, int) and -1 <= label < len(names):
            row[columns.label] = [*names, None][label]
        examples.append(
            TextExample(
                id=_name(row, columns.id, where) if columns.id else None,
                text=_field(row, columns.text, where),
                text_pair=_field(row, columns.text_pair, where) if columns.text_pair else None,
                label=_label(row, columns.label, where, kind) if columns.label else None,
                where=where,
            )
        )
    if kind == "tsv":
        _note_quotes(data, examples)
    return with_distinct_ids(examples)


def with_distinct_ids(examples: list[Any]) -> list[Any]:
    """Returns examples; raises AlbertError if two have the same `id`, unless it is None."""
    places: dict[str, str] = {}
    for example in examples:
        first = places.setdefault(example.id, example.where)
        if first != example.where and example.id is not None:
            raise AlbertError(
                f"{example.where}: the id {short_repr(example.id)} was used at {first} already; "
                "each must be unique, to name its prediction."
            )
    return examples


def _note_quotes(path: str, examples: Sequence[TextExample]) -> None:
    """Warns if most of the texts with quotes look like cells of CSV."""
    texts = (text for x in examples for text in (x.text, x.text_pair) if text and '"' in text)
    kinds = collections.Counter(bool(_QUOTED.fullmatch(text)) for text in texts)
    if kinds[True] > kinds[False]:
        log.warning(
            f"{path}: {kinds[True]:,} texts are quoted as in CSV, and are read with these quotes, "
            "as in GLUE's files; save the table as .csv, or with quoting=csv.QUOTE_NONE."
        )


def _field(row: dict[str, Any], column: str, where: str) -> str:
    if column not in row:
        # Of a name that nobody has chosen.
        hint = f"; name one by `{column}`" if column in ("text", "label") else ""
        raise AlbertError(f"{where}: there is no column {column!r}; there are {joined(row)}{hint}.")
    value = row[column]
    if isinstance(value, (str, bool, int, float)) and value not in (math.inf, -math.inf):
        try:
            return label_text(value)
        except ValueError as error:  # Python writes no integers of thousands of digits.
            raise AlbertError(f"{where}: the number in {column!r} is too long.") from error
    raise AlbertError(f"{where}: {column!r} must be a string or a number, not {short_repr(value)}.")


def _label(row: dict[str, Any], column: str, where: str, kind: str | None) -> Label | None:
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


def _name(row: dict[str, Any], column: str, where: str) -> str:
    """Returns a label or an ID as text. Models and predictions hold them, so they must be exact."""
    name = _field(row, column, where)
    if not is_valid_text(name):
        raise AlbertError(
            f"{where}: {column!r} is {short_repr(name)}, with half of a surrogate pair, which no "
            "file can hold; replace that character."
        )
    return name
