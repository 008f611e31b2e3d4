# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that take several paths, each with the name it has in tables and plots."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf.errors import AlbertError
from benchmarks.path_lists import define_path_list


def define_flag(name: str, what: str, required: bool = False) -> None:
    """Defines a flag of named paths; `what` describes them, without a full stop."""
    define_path_list(
        name,
        None if required else [],
        f"{what}: name=path,name=path.",
        named=True,
        required=required,
    )


def define_checkpoints_flag(required: bool = True) -> None:
    """Defines --checkpoints."""
    define_flag(
        "checkpoints", "Models to compare; a path is that of an output directory or checkpoint of "
        "ours, a folder or archive of the TF1 release, a Hugging Face folder, or a SavedModel",
        required=required
    )  # fmt: skip


def parse(pairs: Sequence[str]) -> dict[str, str]:
    """Paths by name.

    Args:
      pairs: "name=path" each.

    Raises:
      AlbertError: a pair has no name or no path, or a name occurs twice.
    """
    paths: dict[str, str] = {}
    for pair in pairs:
        name, _, path = (part.strip() for part in pair.partition("="))
        if not name or not path:
            raise AlbertError(f"{pair!r} is not of the form name=path.")
        if name in paths:
            raise AlbertError(f"The name {name!r} is given twice; give each path its own name.")
        paths[name] = path
    return paths
