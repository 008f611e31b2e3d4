# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags for lists of paths, in which the home directory is expanded."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from albert_tf.cli.path_flags import PathParser, expand_home


class PathListParser(PathParser):
    """Parses a comma list into a list of paths, or of name=path.

    Attributes:
      named: whether each path has a name.
    """

    def __init__(self, named: bool = False) -> None:
        super().__init__()
        self.named = named

    def parse(self, argument: str | Sequence[str]) -> list[str]:
        """Returns the list with all home directories expanded."""
        return [self._expand(item) for item in flags.ListParser().parse(argument)]

    def _expand(self, item: str) -> str:
        name, equals, path = item.partition("=")
        return name + equals + expand_home(path) if self.named and equals else expand_home(item)


def define_path_list(
    name: str,
    default: Sequence[str] | None,
    help: str,
    *,
    named: bool = False,
    required: bool = False,
) -> None:
    """Defines a flag for a list of paths, or of name=path if `named`."""
    parser, serializer = PathListParser(named), flags.CsvListSerializer(",")
    flags.DEFINE(parser, name, default, help, serializer=serializer, required=required)
