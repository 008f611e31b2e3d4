# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Standard output and standard error: what is kept off the terminal, and text of any encoding."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

#: Errors of writing to a pipe, or to a terminal, that has been closed at the other end.
_NO_READER = (errno.EPIPE, errno.EIO)


def print_any_text() -> None:
    """Prints "?" for characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


class _Outliving:
    """A standard stream whose text is dropped once nobody can read it any more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text, or drops it; see TextIO."""
        with self._shut_if_dead():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered, or drops it; see TextIO."""
        with self._shut_if_dead():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _shut_if_dead(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
            # What is still buffered, and what native code writes, needs a place as well.
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextlib.contextmanager
def outliving_readers() -> Iterator[None]:
    """Keeps a with block from failing because nobody reads what it prints any more.

    From when the pipe or the terminal of the standard output, or error, is closed, what the process
    writes there is dropped. Streams that a program has replaced, as in notebooks, are left alone.
    """
    former = sys.stdout, sys.stderr
    own = sys.__stdout__, sys.__stderr__
    streams = [_Outliving(s) if s is not None and s is o else s for s, o in zip(former, own)]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        for stream in filter(None, streams):
            stream.flush()
        sys.stdout, sys.stderr = former


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
