# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Standard output and standard error: what is kept off the terminal, and text of any encoding."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence


def print_any_text() -> None:
    """Prints "?" for characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


#: Held while standard error is shut: another thread would take the shut one for the real one.
_shut = threading.RLock()


@contextlib.contextmanager
def standard_error_shut() -> Iterator[None]:
    """Drops what the process writes to standard error, native code included; errors still raise."""
    with _shut:
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
    """Drops matching lines from standard error, including those that native code writes.

    A separate process passes on the other lines at once, so that none is lost if this process
    crashes; a thread would not run while a library is loaded. Without `sed`, or if standard error
    is closed, nothing is dropped.

    Args:
      patterns: extended regular expressions, matched from the beginning of a line.
    """
    sed = shutil.which("sed")
    if not patterns or sed is None or sys.stderr is None:
        yield
        return
    stderr = os.dup(2)
    expressions = [part for pattern in patterns for part in ("-e", f"\\|^{pattern}|d")]
    # In its own session, so that Ctrl-C does not reach it; it ends when its input is closed.
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
