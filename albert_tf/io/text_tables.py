# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows by column name, from TSV, CSV, JSON, Parquet and Excel files or from memory.

Other libraries' types are recognised by their methods, so none of them is imported.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Union

from albert_tf.errors import AlbertError, first_line
from albert_tf.io.files import check_file, is_local, path_of, read_bytes
from albert_tf.io.json_values import joined, parse_json, short_repr
from albert_tf.io.log import log
from albert_tf.io.text_files import read_lines

#: The place of each row, for errors, and its values by column.
Rows = Iterator[tuple[str, dict[str, Any]]]
#: The class of a text. It keeps the type that it has in the data.
Label = Union[str, int, float, bool]
#: Attributes of data sets and frames, not of their columns.
_OF_DATA_SETS = ("features", "itertuples", "to_dicts", "column_names", "as_numpy_iterator")
#: Of CSV, in characters; Python's own limit is 131,072. Lines have a limit of their own.
_LONGEST_FIELD = 1 << 30


def read_rows(
    data: Any,
    name: str = "",
    layouts: Mapping[str | None, Callable[[str], Rows]] = {},
    header: Sequence[str] = (),
    skip_malformed: bool = False,
) -> Rows:
    """Yields the rows of a table, or of data in memory, see `data_rows`.

    The name of a table ends in .tsv, .csv, .jsonl or .json (for a list of objects), possibly
    followed by .gz, .bz2 or .xz; or in .parquet or .xlsx, see `library_rows`. TSV and CSV files
    begin with a line of column names, and their values are texts. CSV fields may be quoted and then
    span lines; for TSV see `read_tsv`. Blank lines are skipped, but in a TSV or CSV file of one
    column they are blank texts.

    Args:
      data: the path of a table, or the data.
      name: of data in memory, for errors.
      layouts: what yields the rows of files in the task's own layout, by their `table_kind`.
      header: the column names of a TSV or CSV file that does not begin with them.
      skip_malformed: skip TSV and CSV rows with a wrong number of fields, and say so. Otherwise
        such a row is an error.

    Raises:
      AlbertError: there is no row, or the file is missing, of another kind or malformed; or see
        `data_rows`.
    """
    if not is_path(data):
        yield from not_empty(data_rows(data, name), f"The {name} data")
        return
    path = path_of(data, f"{name} data")
    kind = table_kind(path)
    if kind in layouts:
        rows = layouts[kind](path)
    elif kind in ("parquet", "xlsx"):
        rows = data_rows(library_rows(path), path)
    elif kind == "json":
        found = parse_json("\n".join(read_lines(path, _LONGEST_FIELD)), path)
        if not isinstance(found, list):
            raise AlbertError(f"{path} must hold a list of JSON objects.")
        rows = data_rows(found, path)
    elif kind == "jsonl":
        rows = json_rows(path)
    elif kind:
        lines = _read_csv(path) if kind == "csv" else read_tsv(path)
        rows = _table_rows(path, lines, header, skip_malformed)
    else:
        raise AlbertError(
            f"{path} has an unknown format; its name should end in .tsv, .csv, .jsonl, .json, "
            ".parquet or .xlsx."
        )
    yield from not_empty(rows, path)


def not_empty(rows: Rows, holder: str) -> Rows:
    """Yields rows; raises AlbertError if there is none. `holder` begins the sentence."""
    row = None
    for row in rows:
        yield row
    if row is None:
        raise AlbertError(f"{holder} holds no examples.")


def is_path(data: Any) -> bool:
    """Returns whether data is a path, not the data itself."""
    return isinstance(data, (str, os.PathLike))


def data_rows(data: Any, name: str) -> Rows:
    """Yields the rows of data in memory.

    Args:
      data: an iterable of dicts, such as a list or a Hugging Face `datasets.Dataset`; a dict of
        columns; a data frame of pandas or Polars; a `pyarrow.Table`; or a `tf.data.Dataset` of
        dicts, batched or not.
      name: of the data set, for errors.

    Yields:
      The place of a row ("train row 0"), for errors; and its values by column. Arrays become lists,
      bytes become text, and NaN, which marks a missing value in a DataFrame, becomes None.

    Raises:
      AlbertError: `data` is of another kind, or its columns differ in length.
    """
    for number, row in enumerate(_raw_rows(data, name)):
        where = f"{name} row {number}"
        if not isinstance(row, Mapping):
            raise AlbertError(f"{where} must be a dict of columns, not {short_repr(row)}.")
        _check_distinct(row, where)
        yield where, {str(column): _plain(value, where) for column, value in row.items()}


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
            _check_distinct(getattr(data, "column_names", ()), f"The {name} data")
            return getattr(data, rows)()
    if isinstance(data, Mapping):
        if any(hasattr(part, kind) for part in data.values() for kind in _OF_DATA_SETS):
            parts = joined(data)  # As in datasets.DatasetDict.
            raise AlbertError(f"The {name} data has the parts {parts}; give one of them.")
        sizes = {len(values) if hasattr(values, "__len__") else -1 for values in data.values()}
        others = any(is_path(x) or isinstance(x, (Set, Mapping)) for x in data.values())
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


def class_labels(data: Any, column: str | None) -> list[str]:
    """Returns the names of the classes in a column of a datasets.Dataset, in their order.

    The column may have lists of them. There are none in other data.
    """
    features = getattr(data, "features", None)
    feature = features.get(column) if isinstance(features, Mapping) else None
    feature = getattr(feature, "feature", feature)
    return feature.names if hasattr(feature, "int2str") else []


def _plain(value: Any, where: str) -> Any:
    """Converts a value of any library to Python's own types."""
    if hasattr(value, "numpy"):  # A tensor.
        value = value.numpy()
    if hasattr(value, "tolist"):  # NumPy's.
        value = value.tolist()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise AlbertError(f"{where}: the text {short_repr(value)} is not UTF-8.") from error
    if isinstance(value, Mapping):
        return {str(key): _plain(part, where) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, where) for part in value]
    return None if isinstance(value, float) and value != value else value


def table_kind(path: str) -> str | None:
    """Returns the kind of a table, such as "tsv", by its name; None if it has another one."""
    kinds = r"\.(tsv|csv|jsonl?|parquet|xlsx)(\.gz|\.bz2|\.xz)?$"
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
                _check_distinct(batch.schema.names, path)
                yield from batch.to_pylist()
            return
        rows = library.load_workbook(source, read_only=True).worksheets[0].values
        header = next(rows, ())
        columns = [name for name in header if name is not None]
        _check_distinct(columns, path)
        blank = []
        for row in rows:
            row = {k: value for k, value in zip(header, row) if k is not None}
            if any(value is not None for value in row.values()):
                yield from blank
                yield row
                blank = []
            elif len(columns) == 1:  # An empty text, unless the sheet ends here.
                blank.append(dict.fromkeys(columns, ""))
    except AlbertError:
        raise
    except Exception as error:  # Of their own kinds.
        raise AlbertError(f"{path} cannot be read: {first_line(error)}.") from error


def label_text(label: Label) -> str:
    """Returns a label as tables hold it: a number or a boolean as in JSON."""
    return label if isinstance(label, str) else json.dumps(label)


def json_rows(path: str, **options: Any) -> Rows:
    """Yields the objects of JSON lines (.gz, .bz2 and .xz too), each with its line; NaN is None.

    For the options see `read_lines`.
    """
    for number, line in enumerate(read_lines(path, **options), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = parse_json(line, f"{where}: the line")
        if not isinstance(row, dict):
            raise AlbertError(f"{where}: a JSON object was expected, not {line[:40]!r}.")
        yield where, _plain(row, where)


def _table_rows(
    path: str,
    lines: Iterator[tuple[int, list[str]]],
    header: Sequence[str],
    skip_malformed: bool,
) -> Rows:
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
            yield f"{path}:{number}", dict(zip(header, fields))
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
    return ((number, line.split("\t")) for number, line in enumerate(read_lines(path), start=1))


def _read_csv(path: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields or [""]
    except csv.Error as error:
        raise AlbertError(f"{path}:{reader.line_num}: not CSV: {error}.") from error
