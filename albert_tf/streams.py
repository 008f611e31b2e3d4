# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeping the terminal for what its reader is meant to read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def standard_error_shut() -> Iterator[None]:
    """Drops what the process writes to standard error, native code included; errors still raise."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
