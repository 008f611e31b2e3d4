# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Labelled texts from TSV, CSV and JSON-lines files or from memory, by column name.

Other libraries' types are recognised by their methods, so none of them is imported.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import importlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar, Union

import numpy as np

from albert_tf.errors import AlbertError, first_line
from albert_tf.io.files import check_file, is_local, is_valid_text, path_of, read_bytes
from albert_tf.io.json_values import joined, parse_json, short_repr
from albert_tf.io.log import log
from albert_tf.io.text_files import read_lines

#: The place of each row, for errors, and its values by column.
Rows = Iterator[tuple[str, dict[str, Any]]]
#: The class of a text. It keeps the type that it has in the data.
Label = Union[str, int, float, bool]
_Example = TypeVar("_Example")
#: Attributes of data sets and frames, not of their columns.
_OF_DATA_SETS = ("features", "itertuples", "to_dicts", "column_names", "as_numpy_iterator")
_LONG_LINE_ADVICE = "shorten its texts (a model reads only the first few hundred words of each)"
#: A text that CSV quotes because there are quotes in it.
_QUOTED = re.compile('"[^"]*(?:""[^"]*)+"')
#: Of CSV, in characters; Python's own limit is 131,072. Lines have a limit of their own.
_LONGEST_FIELD = 1 << 30


def read_examples(
    data: Any,
    name: str,
    read_file: Callable[[str], list[_Example]],
    convert: Callable[[Rows], list[_Example]],
    class_names: bool = True,
) -> list[_Example]:
    """Reads examples from a file or from data in memory.

    `read_file` reads the file at a path, `convert` the rows of `data_rows`.

    Raises:
      AlbertError: there is no example, or as `read_file`, `convert` and `data_rows`.
    """
    if _is_path(data):
        return read_file(path_of(data, f"{name} data"))
    examples = convert(data_rows(data, name, class_names))
    if not examples:
        raise AlbertError(f"The {name} data holds no examples.")
    return examples


def _is_path(data: Any) -> bool:
    return isinstance(data, (str, os.PathLike))


def data_rows(data: Any, name: str, class_names: bool = True) -> Rows:
    """Yields the rows of data in memory.

    Args:
      data: an iterable of dicts, such as a list or a Hugging Face `datasets.Dataset`; a dict of
        columns; a data frame of pandas or Polars; a `pyarrow.Table`; or a `tf.data.Dataset` of
        dicts, batched or not.
      name: of the data set, for errors.
      class_names: turn the numbers of a `ClassLabel` column of a `datasets.Dataset` into the names
        of the classes, and -1, which stands for no label, into None.

    Yields:
      The place of a row ("train row 0"), for errors; and its values by column. Arrays become lists,
      bytes become text, and NaN, which marks a missing value in a DataFrame, becomes None.

    Raises:
      AlbertError: `data` is of another kind, or its columns differ in length.
    """
    labels = class_labels(data) if class_names else {}
    for number, row in enumerate(_raw_rows(data, name)):
        where = f"{name} row {number}"
        if not isinstance(row, Mapping):
            raise AlbertError(f"{where} must be a dict of columns, not {short_repr(row)}.")
        _check_distinct(row, where)
        values = {str(column): _plain(value, where) for column, value in row.items()}
        for column, names in labels.items():
            if isinstance(values.get(column), int) and -1 <= values[column] < len(names):
                values[column] = [*names, None][values[column]]
        yield where, values


def _raw_rows(data: Any, name: str) -> Iterable[Any]:
    if hasattr(data, "as_numpy_iterator"):  # tf.data.Dataset
        specs = getattr(data.element_spec, "values", list)()
        # In single rows, a text has no dimension.
        if specs and all(getattr(getattr(spec, "shape", None), "rank", 0) for spec in specs):
            data = data.unbatch()
        return data.as_numpy_iterator()
    if hasattr(data, "itertuples"):  # pandas.DataFrame
        _check_distinct(data.columns, f"The {name} data")
        return data.to_dict("records")
    for rows in ("to_dicts", "to_pylist"):  # polars.DataFrame, pyarrow.Table
        if hasattr(data, rows):
            return getattr(data, rows)()
    if isinstance(data, Mapping):
        if any(hasattr(part, kind) for part in data.values() for kind in _OF_DATA_SETS):
            parts = joined(data)  # As in datasets.DatasetDict.
            raise AlbertError(f"The {name} data has the parts {parts}; give one of them.")
        sizes = {len(values) if hasattr(values, "__len__") else -1 for values in data.values()}
        others = any(_is_path(x) or isinstance(x, (Set, Mapping)) for x in data.values())
        if len(sizes) != 1 or sizes == {-1} or others:
            raise AlbertError(
                f"The {name} data is a dict, but its values are not columns of one length; give "
                "one data set: a path, a list of dicts, a dict of columns or a data frame."
            )
        return (dict(zip(data, row)) for row in zip(*data.values()))
    if isinstance(data, Iterable) and not isinstance(data, bytes):
        return data
    raise AlbertError(
        f"The {name} data must be a path, a list of dicts, a dict of columns, a data frame or a "
        f"data set, not {short_repr(data)}."
    )


def _check_distinct(columns: Iterable[Any], where: str) -> None:
    names = [str(column) for column in columns]
    if len({*names}) < len(names):
        raise AlbertError(f"{where}: a column appears more than once among {joined(names)}.")


def class_labels(data: Any) -> dict[str, list[str]]:
    """Returns the names of the classes of a datasets.Dataset, by column, in their order."""
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):
        return {}
    return {column: f.names for column, f in features.items() if hasattr(f, "int2str")}


def _plain(value: Any, where: str) -> Any:
    """Converts a value of any library to Python's own types."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise AlbertError(f"{where}: the text {short_repr(value)} is not UTF-8.") from error
    if hasattr(value, "numpy"):  # A tensor.
        return _plain(value.numpy(), where)
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist(), where)
    if isinstance(value, Mapping):
        return {str(key): _plain(part, where) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, where) for part in value]
    return None if isinstance(value, float) and value != value else value


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


def read_text_table(
    path: str,
    columns: TextColumns,
    header: Sequence[str] = (),
    skip_malformed: bool = False,
) -> list[TextExample]:
    """Reads a table whose name ends in .tsv, .csv or .jsonl, possibly followed by .gz, .bz2 or .xz.

    Or in .json, for a list of objects, .parquet or .xlsx; see `library_rows`. TSV and CSV files
    begin with a line of column names. CSV fields may be quoted and then span lines; for TSV see
    `read_tsv`. A JSON line is an object of strings, numbers or booleans. Blank lines are skipped,
    but in a TSV or CSV file of one column they are blank texts.

    Args:
      path: path of the file.
      columns: the columns to read.
      header: the column names of a TSV or CSV file that does not begin with them.
      skip_malformed: skip TSV and CSV rows with a wrong number of fields, and say so. Otherwise
        such a row is an error.

    Raises:
      AlbertError: the file is missing, empty, of another kind or malformed, lacks a column, or
        repeats an ID.
    """
    kind = table_kind(path)
    rows = file_rows(path, header, skip_malformed)
    examples = _examples(rows, columns, untyped=kind in ("tsv", "csv"))
    if not examples:
        raise AlbertError(f"{path} holds no examples.")
    if kind == "tsv":
        _note_quotes(path, examples)
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


def file_rows(path: str, header: Sequence[str] = (), skip_malformed: bool = False) -> Rows:
    """Yields the rows of a table, those of CSV and TSV as texts; see `read_text_table`."""
    kind = table_kind(path)
    if kind in ("parquet", "xlsx"):
        return data_rows(library_rows(path), path)
    if re.search(r"\.json(\.gz|\.bz2|\.xz)?$", path, re.IGNORECASE):
        rows = parse_json("\n".join(read_lines(path, _LONGEST_FIELD)), path)
        if not isinstance(rows, list):
            raise AlbertError(f"{path} must hold a list of JSON objects.")
        return data_rows(rows, path)
    if not kind:
        raise AlbertError(
            f"{path} has an unknown format; its name should end in .tsv, .csv, .jsonl, .json, "
            ".parquet or .xlsx."
        )
    if kind == "jsonl":
        rows = json_rows(path)
    else:
        lines = _read_csv(path) if kind == "csv" else read_tsv(path)
        rows = _table_rows(path, lines, header, skip_malformed)
    return ((f"{path}:{line}", row) for line, row in rows)


def read_texts(data: Any, columns: TextColumns, name: str) -> list[TextExample]:
    """Reads texts from a table file, see `read_text_table`, or from memory, see `data_rows`.

    Raises:
      AlbertError: the data is empty or malformed, or lacks a column.
    """
    return read_examples(
        data,
        name,
        lambda path: read_text_table(path, columns),
        lambda rows: _examples(rows, columns),
    )


def _examples(rows: Rows, columns: TextColumns, untyped: bool = False) -> list[TextExample]:
    """Converts rows, each with its place; in `untyped` ones all values are texts."""
    examples: list[TextExample] = []
    places: dict[str, str] = {}
    for where, row in rows:
        examples.append(
            TextExample(
                id=_name(row, columns.id, where) if columns.id else None,
                text=_field(row, columns.text, where),
                text_pair=_field(row, columns.text_pair, where) if columns.text_pair else None,
                label=_label(row, columns.label, where, untyped) if columns.label else None,
                where=where,
            )
        )
        first = places.setdefault(examples[-1].id or "", where) if columns.id else where
        if first != where:
            raise AlbertError(
                f"{where}: the id {short_repr(examples[-1].id)} in the column {columns.id!r} was "
                f"used at {first} already; each must be unique, to name its prediction."
            )
    return examples


def table_kind(path: str) -> str | None:
    """Returns the kind of a table, such as "tsv", by its name; None if it has another one."""
    kinds = r"\.((?:tsv|csv|jsonl)(?=(?:\.gz|\.bz2|\.xz)?$)|(?:parquet|xlsx)$)"
    found = re.search(kinds, path, re.IGNORECASE)
    return found and found[1].lower()


def library_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a .parquet file, a part of it at a time, or of the first sheet of .xlsx.

    Raises:
      AlbertError: the file is missing or damaged, or the package that reads it is not installed.
    """
    check_file(path)
    of_sheets = path.lower().endswith("xlsx")
    package, module = ("openpyxl", "") if of_sheets else ("pyarrow", ".parquet")
    try:
        library = importlib.import_module(package + module)
    except ImportError as error:
        raise AlbertError(f"{path} needs the package {package}: pip install {package}.") from error
    source = path if is_local(path) else io.BytesIO(read_bytes(path))
    try:
        if not of_sheets:
            for batch in library.ParquetFile(source).iter_batches():
                yield from batch.to_pylist()
            return
        rows = library.load_workbook(source, read_only=True).worksheets[0].values
        header = next(rows, ())
        for row in rows:
            if any(value is not None for value in row):
                yield {k: value for k, value in zip(header, row) if k is not None}
    except Exception as error:  # Of their own kinds.
        raise AlbertError(f"{path} cannot be read: {first_line(error)}.") from error


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


def label_text(label: Label) -> str:
    """Returns a label as tables hold it: a number or a boolean as in JSON."""
    return label if isinstance(label, str) else json.dumps(label)


def _label(row: dict[str, Any], column: str, where: str, untyped: bool) -> Label | None:
    """Returns a label in its own type; None for a missing or blank one.

    In an `untyped` table, a number is what is written as Python writes it: 1 and 1.5, but neither
    01 nor 1.50, which may be the names of something.
    """
    if row.get(column, "") is None:
        return None
    text, value = _name(row, column, where).strip(), row[column]
    if not isinstance(value, str):
        return value
    if untyped and text.lstrip("-")[:1].isdigit():
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                if repr(kind(text)) == text:
                    return kind(text)
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


def _lines(path: str, **options: Any) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each line; for the options see `read_lines`."""
    options = {"long_line_advice": _LONG_LINE_ADVICE, **options}
    return enumerate(read_lines(path, **options), start=1)


def json_rows(path: str, **options: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects of JSON lines (.gz, .bz2 and .xz too), each with its line; NaN is None.

    For the options see `read_lines`.
    """
    for number, line in _lines(path, **options):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}:{number}: the line")
        if not isinstance(row, dict):
            raise AlbertError(f"{path}:{number}: a JSON object was expected, not {line[:40]!r}.")
        yield number, {k: None if value != value else value for k, value in row.items()}


def _table_rows(
    path: str,
    lines: Iterator[tuple[int, list[str]]],
    header: Sequence[str],
    skip_malformed: bool,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields rows by column name; a row that spans lines has the number of its last one."""
    if not header:
        found = next((fields for _, fields in lines if not _is_blank(fields)), [])
        header = [name.strip() for name in found]
    _check_distinct(header, f"{path}:1")
    skipped = []
    for number, fields in lines:
        if len(header) > 1 and _is_blank(fields):
            continue
        if len(fields) == len(header):
            yield number, dict(zip(header, fields))
        elif skip_malformed:
            skipped.append(number)
        else:
            raise AlbertError(
                f"{path}:{number}: {len(fields)} fields, but the table has {len(header)} columns."
            )
    if skipped:
        log.info(
            f"{path}:{skipped[0]}: {len(skipped):,} rows with a wrong number of fields, of which "
            "this is the first, were skipped."
        )


def _is_blank(fields: Sequence[str]) -> bool:
    return not "".join(fields).strip() and len(fields) < 2


def read_tsv(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the fields of each line.

    A field is everything between two tabs, quotes included, as in the GLUE files.

    Raises:
      AlbertError: the file is missing, or is not UTF-8 text.
    """
    return ((number, line.split("\t")) for number, line in _lines(path))


def _read_csv(path: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    lines = read_lines(path, long_line_advice=_LONG_LINE_ADVICE)
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields or [""]
    except csv.Error as error:
        raise AlbertError(f"{path}:{reader.line_num}: not CSV: {error}.") from error
