# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that exist for a while: in a block, or as a script defines and parses them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from absl import flags


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
