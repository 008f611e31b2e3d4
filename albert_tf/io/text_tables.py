# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Labelled texts from TSV, CSV and JSON-lines files or from memory, by column name."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io.data_rows import Rows, read_examples
from albert_tf.io.files import is_valid_text
from albert_tf.io.json_values import joined, parse_json, short_repr
from albert_tf.io.text_files import COMPRESSED_SUFFIXES, read_lines

_LONG_LINE_ADVICE = "shorten its texts (a model reads only the first few hundred words of each)"
#: Of CSV, in characters; Python's own limit is 131,072. Lines have a limit of their own.
_LONGEST_FIELD = 1 << 30


@dataclasses.dataclass(frozen=True)
class TextColumns:
    """The columns of a table (keys of a JSON line) to read.

    Attributes:
      text: the text.
      text_pair: the second text of a pair; None for single texts.
      label: the label; None to read no labels.
      id: the ID of a row; None numbers the rows from 0.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    id: str | None = None


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A row with all fields as text. `where` is "file:line", for errors."""

    id: str
    text: str
    text_pair: str | None
    label: str | None
    where: str


def read_text_table(
    path: str,
    columns: TextColumns,
    header: Sequence[str] = (),
    skipped: list[str] | None = None,
) -> list[TextExample]:
    """Reads a table whose name ends in .tsv, .csv or .jsonl, possibly followed by .gz, .bz2 or .xz.

    TSV and CSV files begin with a line of column names. CSV fields may be quoted and then span
    lines; for TSV see `read_tsv`. A JSON line is an object of strings, numbers or booleans. Blank
    lines are skipped.

    Args:
      path: path of the file.
      columns: the columns to read.
      header: the column names of a TSV or CSV file that does not begin with them.
      skipped: if given, receives the place ("file:line") of each TSV or CSV row with a wrong number
        of fields. Otherwise such a row is an error.

    Raises:
      AlbertError: the file is missing, empty, of another kind or malformed, lacks a column, or
        repeats an ID.
    """
    kind = _kind(path)
    if kind == "jsonl":
        rows = json_rows(path)
    else:
        lines = _read_csv(path) if kind == "csv" else read_tsv(path)
        rows = _table_rows(path, lines, columns, header, skipped)
    examples = _examples(((f"{path}:{line}", row) for line, row in rows), columns)
    if not examples:
        raise AlbertError(f"{path} holds no examples.")
    return examples


def read_texts(data: Any, columns: TextColumns, name: str) -> list[TextExample]:
    """Reads texts from a table file or from data in memory.

    Args:
      data: a path, see `read_text_table`; or rows, see `data_rows`.
      columns: the columns to read.
      name: of the data set, for errors.

    Raises:
      AlbertError: the data is empty or malformed, or lacks a column.
    """
    return read_examples(
        data,
        name,
        lambda path: read_text_table(path, columns),
        lambda rows: _examples(rows, columns),
    )


def _examples(rows: Rows, columns: TextColumns) -> list[TextExample]:
    """Converts rows, each with its place."""
    examples: list[TextExample] = []
    places: dict[str, str] = {}
    for where, row in rows:
        examples.append(
            TextExample(
                id=_name(row, columns.id, where) if columns.id else str(len(examples)),
                text=_field(row, columns.text, where),
                text_pair=_field(row, columns.text_pair, where) if columns.text_pair else None,
                label=_name(row, columns.label, where).strip() if columns.label else None,
                where=where,
            )
        )
        first = places.setdefault(examples[-1].id, where)
        if first != where:
            raise AlbertError(
                f"{where}: the id {short_repr(examples[-1].id)} in the column {columns.id!r} "
                f"was used "
                f"at {first} already; each must be unique, as predictions are named by their ids."
            )
    return examples


def _kind(path: str) -> str:
    stem = path
    for suffix in COMPRESSED_SUFFIXES:
        stem = stem.removesuffix(suffix)
    kind = stem.rpartition(".")[2].lower()
    if kind not in ("tsv", "csv", "jsonl"):
        raise AlbertError(
            f"{path} has an unknown format; its name should end in .tsv, .csv or .jsonl."
        )
    return kind


def _field(row: dict[str, Any], column: str, where: str) -> str:
    if column not in row:
        raise AlbertError(f"{where}: there is no {column!r}; the names are {joined(row)}.")
    value = row[column]
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        try:
            return json.dumps(value)
        except ValueError as error:  # Python writes no integers of thousands of digits.
            raise AlbertError(f"{where}: the number in {column!r} is too long.") from error
    raise AlbertError(f"{where}: {column!r} must be a string or a number, not {short_repr(value)}.")


def _name(row: dict[str, Any], column: str, where: str) -> str:
    """Returns a label or an ID. Models and predictions hold them, so they must be exact."""
    name = _field(row, column, where)
    if not is_valid_text(name):
        raise AlbertError(
            f"{where}: {column!r} is {short_repr(name)}, with half of a surrogate pair, "
            f"which no file "
            "can hold; replace that character."
        )
    return name


def _lines(path: str) -> Iterator[str]:
    return read_lines(path, long_line_advice=_LONG_LINE_ADVICE)


def json_rows(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects of JSON lines (.gz, .bz2 and .xz too), each with its line."""
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}:{number}: the line")
        if not isinstance(row, dict):
            raise AlbertError(f"{path}:{number}: a JSON object was expected, not {line[:40]!r}.")
        yield number, row


def _table_rows(
    path: str,
    lines: Iterator[tuple[int, list[str]]],
    columns: TextColumns,
    header: Sequence[str],
    skipped: list[str] | None,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields rows by column name; a row that spans lines has the number of its last one."""
    if not header:
        _, first = next(lines, (1, []))
        if not first:
            return
        header = [name.strip() for name in first]
    _check_header(path, header, columns)
    for number, fields in lines:
        if len(fields) == len(header):
            yield number, dict(zip(header, fields))
        elif skipped is not None:
            skipped.append(f"{path}:{number}")
        else:
            raise AlbertError(
                f"{path}:{number}: {len(fields)} fields, but the table has {len(header)} columns."
            )


def _check_header(path: str, header: Sequence[str], columns: TextColumns) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise AlbertError(f"{path}:1: the column {short_repr(repeated[0])} appears more than once.")
    for name in dataclasses.astuple(columns):
        if name is not None and name not in header:
            raise AlbertError(f"{path} has no column {name!r}; it has {joined(header)}.")


def read_tsv(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the fields of each line that is not blank.

    A field is everything between two tabs, quotes included, as in the GLUE files.

    Raises:
      AlbertError: the file is missing, or is not UTF-8 text.
    """
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            yield number, line.split("\t")


def _read_csv(path: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    reader = csv.reader((line + "\n" for line in _lines(path)), strict=True)
    columns = 1
    try:
        for fields in reader:
            # A line of white space is a text if there is only one column.
            if fields and (len(fields) > 1 or fields[0].strip() or columns == 1):
                columns = max(columns, len(fields))
                yield reader.line_num, fields
    except csv.Error as error:
        raise AlbertError(f"{path}:{reader.line_num}: not CSV: {error}.") from error
