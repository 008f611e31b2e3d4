# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that exist for a while: in a block, or as a script defines, parses and uses them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from types import ModuleType

from absl import flags

from albert_tf.cli.flags import name_flags
from albert_tf.errors import AlbertError


@contextlib.contextmanager
def temporary_flags() -> Iterator[flags.FlagValues]:
    """Yields all flags; at the end removes their values and the flags defined in the block."""
    defined_before = set(flags.FLAGS)
    try:
        yield flags.FLAGS
    finally:
        flags.FLAGS.unparse_flags()
        for name in set(flags.FLAGS) - defined_before:
            delattr(flags.FLAGS, name)


@contextlib.contextmanager
def parsed_flags(define_flags: Callable[[], None], *arguments: object) -> Iterator[None]:
    """Defines and parses flags as a script does; removes them at the end."""
    with temporary_flags() as values:
        define_flags()
        values(["script", *map(str, arguments)])
        yield


def run_printed(script: ModuleType, **values: object) -> str:
    """Runs a script with these flags in this process; returns what it printed.

    Raises:
      AlbertError: of the script, which names flags as on the terminal.
    """
    given = [f"--{name}={value}" for name, value in values.items()]
    with (
        parsed_flags(script.define_flags, *given),
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        try:
            script.main.__wrapped__()
        except AlbertError as error:
            raise type(error)(name_flags(str(error))) from error
    return printed.getvalue()
