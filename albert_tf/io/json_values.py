# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON that may be damaged or of another program: parsed, and checked against dataclasses."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from albert_tf.errors import AlbertError

T = TypeVar("T")

#: What `json.loads` and `JSONDecoder.raw_decode` raise: besides errors of syntax, ValueError for
#: integers of thousands of digits and RecursionError for lists in lists in lists.
JSON_ERRORS = (ValueError, RecursionError)
_TYPES = {"int": int, "str": str, "bool": bool, "float": (int, float), "None": type(None)}


def json_fault(error: Exception) -> str:
    """What is wrong, of one of JSON_ERRORS, as part of a sentence."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return (
        "it is nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
    )


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text; `where` names it in the error.

    Raises:
      AlbertError: it is not JSON.
    """
    try:
        return json.loads(text)
    except JSON_ERRORS as error:
        line = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise AlbertError(f"{where} is not JSON{line}: {json_fault(error)}.") from error


def finite_only(value: Any) -> Any:
    """The value with None for each number that is not finite, which JSON has no way to write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite_only(part) for name, part in value.items()}
    return [finite_only(part) for part in value] if isinstance(value, (list, tuple)) else value


def shown(value: object, limit: int = 60) -> str:
    """A value as Python writes it, cut to so many characters, for an error."""
    return _shortened(value, repr, limit)


def shown_json(value: object, limit: int = 60) -> str:
    """A value as JSON has it, cut to so many characters, for an error."""
    return _shortened(value, json.dumps, limit)


def _shortened(value: object, write: Callable[[object], str], limit: int) -> str:
    try:
        text = write(value)
    except RecursionError:
        text = "lists in lists"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def shown_names(names: Any, limit: int = 500) -> str:
    """Names with commas between them, cut to so many characters, for an error."""
    text = ", ".join(map(str, names))
    return (text if len(text) <= limit else f"{text[: limit - 3]}...") or "none"


def from_json(cls: type[T], values: Any, where: str) -> T:
    """Builds a dataclass from JSON values.

    Fields annotated with int, float, str, bool or None, or several of them, must be of that type;
    others are taken as they are.

    Args:
      cls: the dataclass.
      values: its fields by name; those with a default may be absent.
      where: names the values in errors.

    Raises:
      AlbertError: `values` is no mapping, has an unknown key, lacks one, or has a value of another
        type; or whatever the dataclass itself raises.
    """
    if not isinstance(values, Mapping):
        raise AlbertError(f"{where}: a JSON object was expected, not {shown(values)}.")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            raise AlbertError(f"{where}: unknown key {shown(name)}; known are {', '.join(fields)}.")
    for name, field in fields.items():
        if name not in values:
            if field.default is field.default_factory is dataclasses.MISSING:
                raise AlbertError(f"{where}: the key {name!r} is missing.")
            continue
        wanted, value = str(field.type).split(" | "), values[name]
        if not all(kind in _TYPES for kind in wanted):
            continue
        # In Python, True is an integer.
        fits = (isinstance(value, _TYPES[kind]) for kind in wanted)
        if not any(fits) or (isinstance(value, bool) and "bool" not in wanted):
            expected = " or ".join(wanted)
            raise AlbertError(f"{where}: {name!r} must be of type {expected}, not {shown(value)}.")
    return cls(**values)
