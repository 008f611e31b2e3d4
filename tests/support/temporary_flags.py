# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that exist for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

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
