# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Lets a run outlive the terminal or the pipe that its output goes to."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

#: Errors of writing to a pipe, or to a terminal, that has been closed at the other end.
_NO_READER = (errno.EPIPE, errno.EIO)


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
