# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that were given, but that the mode of a script does not read.

A flag that contradicts the mode is an error. A flag that the mode only has no use for, such as
--learning_rate without --do_train, is named in a line: the command that trained a model should also
evaluate it.
"""

from __future__ import annotations

from collections.abc import Iterable

from absl import flags

from albert_tf.errors import AlbertError


def refuse_flags(names: Iterable[str], reason: str) -> None:
    """Refuses flags that would be ignored.

    Args:
      names: of the flags, without dashes.
      reason: why they would be, and what to do; a sentence without its first capital letter.

    Raises:
      AlbertError: one of them was given.
    """
    given = _given(names)
    if given:
        raise AlbertError(f"{_joined(given)} would be ignored: {reason}")


def note_unused_flags(names: Iterable[str], missing: str) -> None:
    """Prints which of the flags were given in vain.

    Args:
      names: of the flags, without dashes.
      missing: the flag, without dashes, that would make them matter.
    """
    given = _given(names)
    if given:
        verb = "has" if len(given) == 1 else "have"
        print(f"Without --{missing}, {_joined(given)} {verb} no effect.")


def _given(names: Iterable[str]) -> list[str]:
    return [f"--{name}" for name in names if flags.FLAGS[name].present]


def _joined(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
