# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exceptions with messages for the user."""

from __future__ import annotations

import re

#: Control characters, line ends, marks that reverse the direction of writing, and halves of pairs.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class AlbertError(ValueError):
    """Bad input. The message is one sentence: what is wrong, where, and what to do.

    Scripts print it as ``error: <sentence>``, without a stack trace, and exit with status 1.
    """

    def __str__(self) -> str:
        """The message, which may quote names from files, see `printable`."""
        return printable(super().__str__())

    #: Keeps Keras from adding the arguments of the layer that raised the error to its message.
    _keras_call_info_injected = True


class StoppedError(AlbertError):
    """Work stopped, but not because of its input; the same command continues it."""


class DivergedError(AlbertError):
    """Training diverged, or a model computes values that are not finite; other runs may succeed."""


class DamagedError(AlbertError):
    """A file written by our programs is truncated or altered; an older copy may be intact."""


def printable(text: str) -> str:
    """Returns a file's text with escapes for characters that steer a terminal or end a line."""
    return _CONTROLS.sub(lambda match: ascii(match.group())[1:-1], text)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, without TensorFlow's node names."""
    text = re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]", "", str(error).strip())
    return (text.splitlines() or [type(error).__name__])[0][:200]


def root_cause(error: BaseException) -> BaseException:
    """Returns the error that led to an error, such as the system's behind a library's."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error
