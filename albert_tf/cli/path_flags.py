# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags for paths: expands the home directory and checks local paths early.

A script defines its paths with `define_path` or `define_paths` and names the check that each must
pass. `albert_tf.cli.script` runs all checks before the script's own code, so that a mistyped path
is reported before TensorFlow is imported. Paths with a scheme, such as gs://, are left to the code
that opens them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from absl import flags

from albert_tf.errors import AlbertError
from albert_tf.io import files

#: Takes a path and raises AlbertError if the script cannot use it.
Check = Callable[[str], object]

#: Checks that several scripts share; `what` is the term that errors use.
check_records = functools.partial(files.check_pattern, what="record file")
check_run_dirs = functools.partial(files.check_pattern, what="run directory")
check_squad_file = functools.partial(files.check_file, what="SQuAD file")


def expand_home(path: str) -> str:
    """Replaces ~ or ~user at the start of a path by the home directory, as a shell does.

    A ~ anywhere else is an ordinary character.

    Raises:
      ValueError: the home directory does not exist, nor a file of that name in the working folder.
    """
    if not path.startswith("~"):
        return path
    user = path.partition("/")[0]
    home = os.path.expanduser(user)
    if user == "~" and os.environ.get("HOME") == "":
        home = user  # os.path.expanduser returns the root of the file system.
    if home != user:
        return home.rstrip("/") + path[len(user) :] or "/"
    if os.path.lexists(path):
        return path
    raise ValueError(
        f"{user} has no home directory here; give the whole path, or ./{path} if that is its name."
    )


class PathParser(flags.ArgumentParser):
    """Parses a path.

    Attributes:
      check: raises AlbertError for a path that cannot be used; None: no check.
      when: returns whether the path will be used, once all flags are parsed; None: always.
    """

    def __init__(self, check: Check | None = None, when: Callable[[], bool] | None = None) -> None:
        super().__init__()
        self.check, self.when = check, when

    def parse(self, argument: str) -> object:
        """Returns the value with all home directories expanded."""
        return expand_home(argument)

    def paths(self, value: object) -> list[str]:
        """Returns the paths in a parsed value."""
        return [value]

    def flag_type(self) -> str:
        """Returns the name of the type for --helpxml."""
        return "path"


class CommaPathsParser(PathParser):
    """Parses a comma list of paths; the value is still one string."""

    def parse(self, argument: str) -> str:
        """Returns the comma list with all home directories expanded."""
        return ",".join(expand_home(path) for path in self.paths(argument))

    def paths(self, value: str) -> list[str]:
        """Returns the paths in a comma list."""
        return [path.strip() for path in value.split(",") if path.strip()]


def define_path(
    name: str,
    default: str | None,
    help: str,
    check: Check | None = None,
    *,
    when: Callable[[], bool] | None = None,
    required: bool = False,
) -> None:
    """Defines a flag for a path.

    Args:
      name: name of the flag.
      default: default value.
      help: help text.
      check: raises AlbertError for a path that cannot be used, such as `files.check_file`.
      when: returns whether the path will be used, given the other flags; None: always. Unused
        paths are not checked.
      required: whether the flag must be given.
    """
    parser, serializer = PathParser(check, when), flags.ArgumentSerializer()
    flags.DEFINE(parser, name, default, help, serializer=serializer, required=required)


def define_paths(
    name: str,
    default: str | None,
    help: str,
    check: Check | None = None,
    *,
    required: bool = False,
) -> None:
    """Defines a flag for a comma list of paths whose value is one string; see `define_path`."""
    parser, serializer = CommaPathsParser(check), flags.ArgumentSerializer()
    flags.DEFINE(parser, name, default, help, serializer=serializer, required=required)


def check_paths(values: flags.FlagValues) -> None:
    """Checks the local paths of all flags.

    Raises:
      AlbertError: a path does not pass its check; the error names the flag.
    """
    for name in values:
        flag = values[name]
        parser = flag.parser
        if not (isinstance(parser, PathParser) and parser.check and flag.value):
            continue
        if parser.when and not parser.when():
            continue
        for path in filter(files.is_local, parser.paths(flag.value)):
            try:
                parser.check(path)
            except AlbertError as error:
                raise AlbertError(f"--{name}: {error}") from error
