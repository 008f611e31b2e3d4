# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Data sets outside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("ALBERT_DATA_DIR", Path(__file__).parents[2].parent / "shared" / "data"))


def real_data(name: str) -> Path:
    """Returns a path in the data folder; skips the test if it is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is absent (set ALBERT_DATA_DIR)")
    return path
