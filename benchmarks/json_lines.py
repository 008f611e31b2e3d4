# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of results with one JSON object per line, to which a benchmark adds as it goes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any


def read_lines(path: str) -> list[dict[str, Any]]:
    """Returns the objects of a file; none if there is no such file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def add_lines(path: str, values: Iterable[Mapping[str, Any]]) -> None:
    """Appends objects to a file, which is created if it does not exist."""
    with open(path, "a", encoding="utf-8") as f:
        f.writelines(f"{json.dumps(value)}\n" for value in values)
