# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Labelled texts from TSV, CSV and JSON-lines files, by column name."""

from __future__ import annotations

import csv
import dataclasses
import difflib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import parse_json, shown, shown_names
from albert_tf.io.text_files import COMPRESSED_SUFFIXES, check_text_file, read_lines

_LONG_LINE_ADVICE = "shorten its texts (a model reads only the first few hundred words of each)"
#: What separates the columns of other programs' files.
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}


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


def check_table(path: str) -> None:
    """Raises AlbertError unless there is a file at `path` with the name of a table."""
    _kind(path)
    check_text_file(path)


def read_text_table(path: str, columns: TextColumns) -> list[TextExample]:
    """Reads a table whose name ends in .tsv, .csv or .jsonl, possibly followed by .gz, .bz2 or .xz.

    TSV and CSV files begin with a line of column names. A TSV field is everything between two tabs,
    quotes included, as in the GLUE files; quoted CSV fields may span lines. A JSON line is an
    object of strings, numbers or booleans. Blank lines are skipped.

    Raises:
      AlbertError: the file is missing, empty, of another kind or malformed, lacks a column, or
        repeats an ID.
    """
    kind = _kind(path)
    rows = _json_rows(path) if kind == "jsonl" else _table_rows(path, kind, columns)
    examples: list[TextExample] = []
    places: dict[str, str] = {}
    for line, row in rows:
        where = f"{path}:{line}"
        examples.append(
            TextExample(
                id=_field(row, columns.id, where) if columns.id else str(len(examples)),
                text=_field(row, columns.text, where),
                text_pair=_field(row, columns.text_pair, where) if columns.text_pair else None,
                label=_field(row, columns.label, where).strip() if columns.label else None,
                where=where,
            )
        )
        first = places.setdefault(examples[-1].id, where)
        if first != where:
            raise AlbertError(
                f"{where}: the id {shown(examples[-1].id)} in the column {columns.id!r} was used "
                f"at {first} already; each must be unique, as predictions are named by their ids."
            )
    if not examples:
        raise AlbertError(f"{path} holds no examples.")
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
        raise AlbertError(
            f"{where}: there is no {column!r}; the names are {shown_names(row)}."
            f"{_column_hint(column, row)}"
        )
    value = row[column]
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise AlbertError(f"{where}: {column!r} must be a string or a number, not {shown(value)}.")


def _lines(path: str) -> Iterator[str]:
    return read_lines(path, long_line_advice=_LONG_LINE_ADVICE)


def _json_rows(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}:{number}: the line")
        if not isinstance(row, dict):
            raise AlbertError(f"{path}:{number}: a JSON object was expected, not {line[:40]!r}.")
        yield number, row


def _table_rows(path: str, kind: str, columns: TextColumns) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields rows by column name; a row that spans lines has the number of its last line."""
    header: list[str] = []
    for number, fields in _csv_fields(path) if kind == "csv" else _tsv_fields(path):
        if not header:
            header = [name.strip() for name in fields]
            _check_header(path, header, columns)
        elif len(fields) != len(header):
            raise AlbertError(
                f"{path}:{number}: {len(fields)} fields, but the first line names {len(header)} "
                "columns."
            )
        else:
            yield number, dict(zip(header, fields))


def _check_header(path: str, header: list[str], columns: TextColumns) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise AlbertError(f"{path}:1: the column {shown(repeated[0])} appears more than once.")
    for name in dataclasses.astuple(columns):
        if name is not None and name not in header:
            hint = _column_hint(name, header) or _separator_hint(header)
            raise AlbertError(f"{path} has no column {name!r}; it has {shown_names(header)}.{hint}")


def _column_hint(name: str, names: Iterable[str]) -> str:
    """Returns " Did you mean …?" if a column has almost the given name, or ""."""
    similar = [other for other in names if other.lower() == name.lower()]
    similar += difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {shown(similar[0])}? Case matters." if similar else ""


def _separator_hint(header: list[str]) -> str:
    """Returns a sentence, after a space, if a header was not split into columns, or ""."""
    for separator, plural in _SEPARATORS.items():
        if len(header) == 1 and separator in header[0]:
            return (
                f" Its columns seem to be separated by {plural}; in a .tsv file tabs separate them,"
                " in a .csv file commas."
            )
    return ""


def _tsv_fields(path: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            yield number, line.split("\t")


def _csv_fields(path: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for line in _lines(path)), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise AlbertError(f"{path}:{reader.line_num}: not CSV: {error}.") from error
