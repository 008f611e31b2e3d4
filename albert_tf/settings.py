# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings, each declared once: at a field of a dataclass, with its default, bounds and help.

    @dataclasses.dataclass(frozen=True)
    class Options(Settings):
        num_layers: int = setting(12, "Number of layers.", minimum=1)

Python programs set them by name. `albert_tf.cli.flags` makes the scripts' flags of them, and
docs/flags.md is made of those.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import numbers
import os
from collections.abc import Collection
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined, short_repr

#: Devices count steps, and take seeds, as int32.
INT32_MAX = 2**31 - 1
#: Devices compute in float32: smaller numbers are 0 there, and those from the limit on infinite.
ABOVE_0, _LIMIT = 2.0**-126, 2.0**128


def setting(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    minimum: float = 0,
    maximum: float | None = None,
    choices: tuple[Any, ...] = (),
    source: str = "",
    path: bool = False,
    flag: str | None = "",
    needs: str | None = None,
) -> Any:
    """Declares a field of a subclass of Settings.

    Its type is int, float, str or bool, perhaps "or None" where None stands for a default that
    depends on other things.

    Args:
      default: the value if none is given.
      help: sentences for users, who may know the setting as a flag.
      minimum: the least number; ABOVE_0 for numbers above 0.
      maximum: the largest number; None for what int32 or float32 can hold.
      choices: the values that are allowed; empty for any.
      source: the paper or program that the setting or its default is from.
      path: whether it is a path, or a comma list of paths.
      flag: name of the flag if it is another one; None if there is no flag.
      needs: the flag without which the setting has no effect.
    """
    known = {
        "help": f"{help} Source: {source}." if source else help,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
        "path": path,
        "flag": flag,
        "needs": needs,
    }
    return dataclasses.field(default=default, metadata=known)


#: A number of at least 1.
count_setting = functools.partial(setting, minimum=1)
#: A setting without effect unless the run trains.
training_setting = functools.partial(setting, needs="do_train")


def with_default(cls: type, name: str, default: Any, note: str = "", **others: Any) -> Any:
    """Declares the field `name` of a subclass with another default, and a note in its help.

    For `others` see `setting`.
    """
    known = cls.__dataclass_fields__[name].metadata
    changed = {**known, "help": f"{known['help']} {note}".strip(), **others}
    return dataclasses.field(default=default, metadata=changed)


class Settings:
    """Base of dataclasses whose fields are declared by `setting`. It checks their values."""

    def __post_init__(self) -> None:
        """Raises AlbertError for a value of a wrong type, out of bounds or none of the choices."""
        for field in dataclasses.fields(self):
            name, value, known = f"`{field.name}`", getattr(self, field.name), field.metadata
            if "help" not in known:
                continue
            kinds = str(field.type).split(" | ")
            value = as_plain(value, kinds[0])
            if known["path"] and isinstance(value, os.PathLike):
                value = os.fspath(value)
            object.__setattr__(self, field.name, value)
            if value is None and "None" in kinds:
                continue
            if known["choices"]:  # 1 is not True.
                if (type(value), value) not in [(type(c), c) for c in known["choices"]]:
                    listed = joined(known["choices"])
                    raise AlbertError(
                        f"{name}={short_repr(value)} is unknown; use one of {listed}."
                    )
            elif "int" in kinds:
                check_integer(name, value, int(known["minimum"]), known["maximum"] or INT32_MAX)
            elif "float" in kinds:
                check_number(name, value, known["minimum"], known["maximum"])
            elif not isinstance(value, bool if "bool" in kinds else str):
                raise AlbertError(f"{name}={short_repr(value)} must be of type {kinds[0]}.")


def as_plain(value: Any, kind: str = "") -> Any:
    """Returns a scalar of NumPy or another library as Python's own, anything else as it is.

    Float32 becomes the shortest number with this value. The kind "float" makes a float of any real
    number but True and False, "int" an integer of a whole one.
    """
    if hasattr(value, "numpy"):
        value = value.numpy()
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        item = value.item()
        value = float(str(value)) if isinstance(item, float) else item
    if isinstance(value, numbers.Number) and not isinstance(value, (bool, complex)):
        with contextlib.suppress(ValueError, OverflowError):  # NaN and infinity are refused later.
            if kind == "int" and value == int(value):
                return int(value)
            if kind == "float":
                return float(value)
    return value


def field_names(cls: type) -> tuple[str, ...]:
    """Returns the names of the fields of a dataclass, in their order."""
    return tuple(field.name for field in dataclasses.fields(cls))


#: Names in other libraries, or of flags, that do not resemble ours most.
_ELSEWHERE = {
    "batch_size": "train_batch_size",
    "lr": "learning_rate",
    "num_train_steps": "train_step",
    "random_seed": "seed",
}


def check_names(given: Collection[str], known: Collection[str]) -> None:
    """Raises AlbertError for names of settings that are not known; it suggests similar ones."""
    shown = []
    for name in sorted({*given} - {*known}):
        close = difflib.get_close_matches(name, [*known], 1, 0.5)
        hint = _ELSEWHERE.get(name) or "".join(close)
        shown.append(f"{name} (did you mean {hint}?)" if hint else name)
    if shown:
        raise AlbertError(f"There are unknown settings: {joined(shown, 200)}.")


def check_number(name: str, value: Any, least: float, most: float | None = None) -> None:
    """Raises AlbertError unless a value is a number in bounds, and is so in float32, too."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number and least <= value < _LIMIT and (most is None or value <= most):
        return
    bounds = "above 0" if least == ABOVE_0 else f"of at least {least:g}"
    expected = f"{bounds} that float32 can hold" if most is None else f"from {least:g} to {most:g}"
    raise AlbertError(f"{name}={short_repr(value)} must be a number {expected}.")


def check_integer(name: str, value: Any, least: int = 1, most: int = INT32_MAX) -> int:
    """Returns a value as Python's integer; AlbertError unless it is one from `least` to `most`."""
    value = as_plain(value, "int")
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise AlbertError(f"{name}={short_repr(value)} must be an integer from {least} to {most}.")
    return value
