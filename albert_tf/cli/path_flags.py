# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that hold paths: the home directory is expanded, and local paths are checked early.

A script defines each of its paths with `define_path`, or `define_path_list`, and names the check
that the path must pass. `albert_tf.cli.script` runs all checks before the script's own code, so
that a mistyped path is refused before TensorFlow is imported. Paths with a scheme, such as gs://,
are left to the code that opens them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from albert_tf.errors import AlbertError
from albert_tf.io import files

#: Takes a path and raises AlbertError if the script cannot use it.
Check = Callable[[str], object]

#: Checks of what several scripts read; the names are those that the readers give it in errors.
check_records = functools.partial(files.check_pattern, what="record file")
check_run_dirs = functools.partial(files.check_pattern, what="run directory")
check_squad_file = functools.partial(files.check_file, what="SQuAD file")
check_vocabulary = functools.partial(files.check_file, what="vocabulary")


def expand_home(path: str) -> str:
    """Replaces ~ or ~user at the beginning of a path by that home directory, as a shell does.

    A ~ anywhere else is an ordinary character.

    Raises:
      ValueError: there is no such home directory, and nothing of that name in the working folder.
    """
    if not path.startswith("~"):
        return path
    user = path.partition("/")[0]
    home = os.path.expanduser(user)
    if user == "~" and os.environ.get("HOME") == "":
        home = user  # os.path.expanduser would take the root of the file system.
    if home != user:
        return home.rstrip("/") + path[len(user) :] or "/"
    if os.path.lexists(path):
        return path
    raise ValueError(
        f"{user} has no home directory here; give the whole path, or ./{path} if that is its name."
    )


class PathParser(flags.ArgumentParser):
    """Parses a path, or a comma list of paths in one string.

    Attributes:
      check: what each path must pass; None: anything goes.
      when: tells, once all flags are parsed, whether the path will be used; None: always.
      many: whether the value is a comma list.
    """

    def __init__(
        self,
        check: Check | None = None,
        when: Callable[[], bool] | None = None,
        many: bool = False,
    ) -> None:
        super().__init__()
        self.check, self.when, self.many = check, when, many

    def parse(self, argument: str) -> object:
        """The value with every home directory expanded."""
        if not self.many:
            return expand_home(argument)
        return ",".join(expand_home(item) for item in self.paths(argument))

    def paths(self, value: object) -> list[str]:
        """The paths in a parsed value."""
        if not self.many:
            return [value]
        return [item.strip() for item in value.split(",") if item.strip()]

    def flag_type(self) -> str:
        """What --helpxml calls the type."""
        return "path"


class PathListParser(PathParser):
    """Parses a comma list to a list of paths, or of name=path.

    Attributes:
      named: whether each path has a name.
    """

    def __init__(self, check: Check | None = None, named: bool = False) -> None:
        super().__init__(check)
        self.named = named

    def parse(self, argument: str | Sequence[str]) -> object:
        """The list with every home directory expanded."""
        expanded = []
        for item in flags.ListParser().parse(argument):
            name, equals, path = self._split(item)
            expanded.append(name + equals + expand_home(path))
        return expanded

    def paths(self, value: object) -> list[str]:
        """The paths in a parsed value, without names."""
        return [self._split(item)[2] for item in value]

    def _split(self, item: str) -> tuple[str, str, str]:
        return item.partition("=") if self.named and "=" in item else ("", "", item)


def define_path(
    name: str,
    default: str | None,
    help: str,
    check: Check | None = None,
    *,
    when: Callable[[], bool] | None = None,
    many: bool = False,
    required: bool = False,
) -> None:
    """Defines a flag for a path.

    Args:
      name: of the flag.
      default: its value if it is not given.
      help: its help.
      check: what the path must pass, such as `files.check_file`. For a comma list each item is
        checked.
      when: whether the path will be used, given the other flags; None: always. An unused path is
        not checked.
      many: whether the flag takes a comma list; its value is a string all the same.
      required: whether the flag must be given.
    """
    flags.DEFINE(
        PathParser(check, when, many),
        name,
        default,
        help,
        serializer=flags.ArgumentSerializer(),
        required=required,
    )


def define_path_list(
    name: str,
    default: Sequence[str] | None,
    help: str,
    check: Check | None = None,
    *,
    named: bool = False,
    required: bool = False,
) -> None:
    """Defines a flag whose value is a list of paths, or if `named` of name=path."""
    flags.DEFINE(
        PathListParser(check, named),
        name,
        default,
        help,
        serializer=flags.CsvListSerializer(","),
        required=required,
    )


def check_paths(values: flags.FlagValues) -> None:
    """Checks the local paths of all flags.

    Raises:
      AlbertError: a path does not pass its check; names the flag.
    """
    for name, parser in _path_parsers(values):
        if not values[name].value or (parser.when and not parser.when()):
            continue
        for path in parser.paths(values[name].value):
            if files.is_local(path):
                try:
                    parser.check(path)
                except AlbertError as error:
                    raise AlbertError(f"--{name}: {error}") from error


def _path_parsers(values: flags.FlagValues) -> Iterator[tuple[str, PathParser]]:
    for name in values:
        parser = values[name].parser
        if isinstance(parser, PathParser) and parser.check:
            yield name, parser
