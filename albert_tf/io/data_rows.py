# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of data in memory, by column name: lists, dicts, data frames and data sets.

Other libraries' types are recognised by their methods, so none of them is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io.files import path_of
from albert_tf.io.json_values import short_repr

Rows = Iterator[tuple[str, dict[str, Any]]]
_Example = TypeVar("_Example")


def read_examples(
    data: Any,
    name: str,
    read_file: Callable[[str], list[_Example]],
    convert: Callable[[Rows], list[_Example]],
    class_names: bool = True,
) -> list[_Example]:
    """Reads examples from a file or from data in memory.

    Args:
      data: a path, or data for `data_rows`.
      name: of the data set, for errors.
      read_file: reads the file at a path.
      convert: makes examples of the rows of `data_rows`.
      class_names: see `data_rows`.

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
        columns; a pandas DataFrame; or a `tf.data.Dataset` of dicts, not batched.
      name: of the data set, for errors.
      class_names: turn the numbers of a `ClassLabel` column of a `datasets.Dataset` into the names
        of the classes.

    Yields:
      The place of a row ("train row 0"), for errors; and its values by column. Arrays become lists,
      bytes become text, and NaN, which marks a missing value in a DataFrame, becomes None.

    Raises:
      AlbertError: `data` is of another kind, or its columns differ in length.
    """
    label_names = _label_names(data) if class_names else {}
    for number, row in enumerate(_raw_rows(data, name)):
        where = f"{name} row {number}"
        if not isinstance(row, Mapping):
            raise AlbertError(f"{where} must be a dict of columns, not {short_repr(row)}.")
        values = {str(column): _plain(value, where) for column, value in row.items()}
        for column, names in label_names.items():
            if isinstance(values.get(column), int) and 0 <= values[column] < len(names):
                values[column] = names[values[column]]
        yield where, values


def _raw_rows(data: Any, name: str) -> Iterable[Any]:
    if hasattr(data, "as_numpy_iterator"):  # tf.data.Dataset
        return data.as_numpy_iterator()
    if hasattr(data, "itertuples"):  # pandas.DataFrame
        return data.to_dict("records")
    if isinstance(data, Mapping):
        sizes = {len(values) if hasattr(values, "__len__") else -1 for values in data.values()}
        if len(sizes) != 1 or sizes == {-1} or any(map(_is_path, data.values())):
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


def _label_names(data: Any) -> dict[str, list[str]]:
    """Returns the names of the labels of a datasets.Dataset, by column."""
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
