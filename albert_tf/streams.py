# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeping the terminal for what its reader is meant to read."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence


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


@contextlib.contextmanager
def standard_error_without(patterns: Sequence[str]) -> Iterator[None]:
    """Drops lines from what the process writes to standard error, native code included.

    Another process passes all other lines on at once, so that none is lost if this one crashes. A
    thread could not: it stands still while a library is loaded. Without `sed`, or with standard
    error closed, nothing is dropped.

    Args:
      patterns: extended regular expressions, matched from the beginning of a line.
    """
    sed = shutil.which("sed")
    if not patterns or sed is None or sys.stderr is None:
        yield
        return
    stderr = os.dup(2)
    expressions = [part for pattern in patterns for part in ("-e", f"\\|^{pattern}|d")]
    # Ctrl-C does not reach it in a session of its own: it ends when nothing more can be written.
    process = subprocess.Popen(
        [sed, "-uE", *expressions],
        stdin=subprocess.PIPE,
        stdout=stderr,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )
    try:
        os.dup2(process.stdin.fileno(), 2)
        process.stdin.close()
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        process.wait()
