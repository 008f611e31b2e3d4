# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of a script, without running it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from absl import flags


@contextlib.contextmanager
def parsed_flags(define_flags: Callable[[], None], *arguments: object) -> Iterator[None]:
    """Defines and parses flags as a script does; removes them afterwards."""
    known = set(flags.FLAGS)
    define_flags()
    try:
        flags.FLAGS(["script", *map(str, arguments)])
        yield
    finally:
        flags.FLAGS.unparse_flags()
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)
