# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Handles flags that were given although the mode of a script does not read them.

A flag that contradicts the mode is an error. A flag that merely has no effect in the mode, such as
--learning_rate without --do_train, is only mentioned: the command that trained a model should also
evaluate it.
"""

from __future__ import annotations

from collections.abc import Iterable

from absl import flags

from albert_tf.errors import AlbertError


def refuse_flags(names: Iterable[str], reason: str) -> None:
    """Raises an error if flags were given that the script would ignore.

    Args:
      names: names of the flags, without dashes.
      reason: why they would be ignored, and what to do; continues the sentence after a colon.

    Raises:
      AlbertError: one of them was given.
    """
    given = _given(names)
    if given:
        raise AlbertError(f"{_joined(given)} would be ignored: {reason}")


def note_unused_flags(names: Iterable[str], missing: str) -> None:
    """Prints which of the flags were given without effect.

    Args:
      names: names of the flags, without dashes.
      missing: the flag, without dashes, that they need to have an effect.
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
