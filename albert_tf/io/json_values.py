# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON that may be damaged or written by other programs: parsing, and checks by dataclasses."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from albert_tf.errors import AlbertError, first_line

#: Errors of `json.loads`: besides syntax errors, ValueError for integers of thousands of digits and
#: RecursionError for deeply nested lists.
JSON_ERRORS = (ValueError, RecursionError)
_TYPES = {"int": int, "str": str, "bool": bool, "float": (int, float), "None": type(None)}


def parse_json(text: str, where: str) -> Any:
    """Parses a JSON text; `where` names it in the error.

    Raises:
      AlbertError: it is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except JSON_ERRORS as error:
        raise AlbertError(f"{where} is not JSON: {first_line(error)}.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes a JSON object; parsers disagree about which of two values for a key counts."""
    value = dict(pairs)
    if len(value) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common()
        raise ValueError(f"an object has the key {short_repr(key)} more than once")
    return value


def digest(value: Any) -> str:
    """Returns the hexadecimal SHA-256 of a JSON value, whatever the order of its keys is."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def finite_only(value: Any) -> Any:
    """Replaces numbers that are not finite, which JSON cannot hold, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite_only(part) for name, part in value.items()}
    return [finite_only(part) for part in value] if isinstance(value, (list, tuple)) else value


def short_repr(value: object, limit: int = 60) -> str:
    """Returns the repr of a value for an error message, cut to `limit` characters."""
    try:
        text = repr(value)
    except RecursionError:
        text = "lists in lists"
    except ValueError:  # Python writes no integers of thousands of digits.
        text = "a very large number"
    return _cut(text, limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def joined(names: Any, limit: int = 500) -> str:
    """Returns names separated by commas for an error message, cut to `limit` characters."""
    return _cut(", ".join(map(str, names)), limit) or "none"


def from_json(cls: type, values: Any, where: str) -> Any:
    """Builds a dataclass from JSON values.

    Fields annotated with int, float, str, bool or None, or a union of them, must have that type;
    other fields are not checked. Fields with a default may be absent from `values`; `where` names
    them in errors.

    Raises:
      AlbertError: `values` is not a mapping, has an unknown key, lacks one, or has a value of
        another type; or the dataclass itself raises it.
    """
    if not isinstance(values, Mapping):
        raise AlbertError(f"{where}: a JSON object was expected, not {short_repr(values)}.")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            raise AlbertError(
                f"{where}: unknown key {short_repr(name)}; known are {', '.join(fields)}."
            )
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
            raise AlbertError(
                f"{where}: {name!r} must be of type {' or '.join(wanted)}, not {short_repr(value)}."
            )
    return cls(**values)
