# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags: those of settings, those for paths, and flags that would have no effect."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from absl import flags

from albert_tf.errors import AlbertError
from albert_tf.io.log import log
from albert_tf.settings import Settings

FLAGS = flags.FLAGS
#: Settings with another name as a flag; the script defines one of the names listed.
_OTHER_NAMES = {
    "max_steps": ("num_train_steps", "train_step"),
    "num_warmup_steps": ("num_warmup_steps", "warmup_step"),
    "seed": ("random_seed",),
    "frozen": ("freeze",),
    "text": ("text_column",),
    "label": ("label_column",),
    "lower_case": ("do_lower_case",),
}
#: The flags that others need to have an effect; see `settings.setting`.
_needs = {}


class PathParser(flags.ArgumentParser):
    """Parses a path, or a comma list of paths."""

    def parse(self, argument: str) -> str:
        """Replaces ~ and ~user at the start of each path, as a shell does."""
        return ",".join(os.path.expanduser(path.strip()) for path in argument.split(","))


def define_path(
    name: str,
    default: str | None,
    help: str,
    *,
    required: bool = False,
    needs: str | None = None,
) -> None:
    """Defines a flag for a path, or for a comma list of paths, whose value is one string.

    It has no effect without the flag `needs`.
    """
    if needs:
        _needs[name] = needs
    flags.DEFINE(
        PathParser(), name, default, help, serializer=flags.ArgumentSerializer(), required=required
    )


def _flags_of(cls: type[Settings]) -> Iterator[tuple[dataclasses.Field, str]]:
    """Yields the settings of a class that are flags, and the names of these."""
    for field in dataclasses.fields(cls):
        if (flag := field.metadata.get("flag")) is not None:
            yield field, flag or field.name


def define_settings(cls: type[Settings], without: Collection[str] = ()) -> None:
    """Defines the flags of a class of settings, without some; the class checks the values."""
    for field, name in _flags_of(cls):
        if field.name in without:
            continue
        known, kind = field.metadata, str(field.type).split(" | ")[0]
        text, default = known["help"], field.default
        if default is dataclasses.MISSING or "Default: " in text:  # It says what it depends on.
            default = None
        if known["path"]:
            define_path(name, default, text)
        elif choices := [_text(choice) for choice in known["choices"] if choice is not None]:
            flags.DEFINE_enum(name, _text(default), choices, text)
        else:
            kind = {"int": "integer", "str": "string"}.get(kind, kind)
            getattr(flags, f"DEFINE_{kind}")(name, default, text)
        _needs[name] = known["needs"]


def _text(choice: object) -> str | None:
    return str(choice).lower() if isinstance(choice, bool) else choice


def given_settings(cls: type[Settings]) -> dict[str, Any]:
    """Returns the settings of a class that were given as flags and have an effect."""
    values = {}
    for field, name in _flags_of(cls):
        needs = field.metadata["needs"]
        unused = needs in FLAGS and not FLAGS[needs].value
        if name in FLAGS and FLAGS[name].present and not unused:
            by_text = {_text(choice): choice for choice in field.metadata["choices"]}
            values[field.name] = by_text.get(FLAGS[name].value, FLAGS[name].value)
    return values


def check_needs() -> None:
    """Refuses flags that have no effect without another one.

    What only training reads is merely mentioned: the command that trained a model should also
    evaluate it.

    Raises:
      AlbertError: such a flag was given.
    """
    for needed in dict.fromkeys(_needs.values()):
        if needed not in FLAGS or FLAGS[needed].value:
            continue
        names = [name for name, other in _needs.items() if other == needed and name in FLAGS]
        if needed != "do_train":
            refuse_flags(names, f"without --{needed} there is no use for it.")
        elif given := _given(names):
            log.info(f"Without --do_train, this has no effect: {given}.")


def refuse_flags(names: Iterable[str], reason: str) -> None:
    """Raises an error if flags were given that the script would ignore.

    Raises:
      AlbertError: one of them was given.
    `reason` says why, and what to do; it continues the sentence after a colon.
    """
    if given := _given(names):
        raise AlbertError(f"{given} would be ignored: {reason}")


def _given(names: Iterable[str]) -> str:
    """Returns the flags that were given, separated by commas."""
    return ", ".join(f"--{name}" for name in names if FLAGS[name].present)


def define_overwrite_flag() -> None:
    """Defines --overwrite; see files.check_output and files.new_folder."""
    flags.DEFINE_bool(
        "overwrite", False, "Replace the output of an earlier command, but never files that this "
        "command reads. A folder with a whole model is kept under another name."
    )  # fmt: skip


def name_flags(text: str) -> str:
    """Returns a sentence with this script's flags in place of `settings` in backticks.

    The library does not know the flags: its errors name an argument of Python in backticks, such as
    `max_steps`. A script prints --num_train_steps instead; settings without a flag keep their name.
    """

    def flag(match) -> str:
        names = _OTHER_NAMES.get(match[1], (match[1],))
        # Commands that use a model name what the scripts do.
        dashes = "--" * match[1].startswith("do_")
        return next((f"--{name}" for name in names if name in FLAGS), dashes + match[1])

    return re.sub(r"`(\w+)`", flag, text)
