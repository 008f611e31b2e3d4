# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Files through tf.io.gfile: names, globs, atomic writes, JSON, checksums.

The functions import TensorFlow only where they need it: not for ``--help``, nor for checking local
paths and reading local files, so that bad input is refused at once.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import storage
from albert_tf.io.json_values import finite_only, parse_json, short_repr
from albert_tf.io.removal import remove_temporary, temporary_name
from albert_tf.io.storage import exists, gfile, is_local, isdir, makedirs, no_space, rename, retried

_SURROGATES = re.compile("[\ud800-\udfff]")


def path_of(path: Any, what: str) -> str:
    """Returns a path, a string or a path object, as a string; `what` it leads to is for the error.

    Raises:
      AlbertError: `path` has another type, is empty, or is not UTF-8.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text:
        raise AlbertError(f"The path of the {what} must be a string, not {short_repr(path)}.")
    if not is_valid_text(text):
        raise AlbertError(
            f"The path of the {what} is not UTF-8 ({short_repr(text)}); rename the files."
        )
    return text


def plain_path(path: str | None) -> str | None:
    """Returns a local path without "./", "//" and a last "/", which lead to the same file."""
    return path if not path or "://" in path else str(pathlib.PurePath(path))


def check_file(path: str, what: str = "file") -> None:
    """Raises AlbertError unless there is a regular file at `path`; `what` describes it."""
    if not exists(path):
        raise AlbertError(f"The {what} {path} does not exist.")
    if isdir(path):
        raise AlbertError(f"The {what} {path} is a folder; give a file.")
    # A pipe may never answer, and a device never end.
    if is_local(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise AlbertError(
            f"The {what} {path} is a pipe or a device; write its content to a file, and give that."
        )


def expand_globs(patterns: str | list[str], what: str = "input file") -> list[str]:
    """Expands a comma list of paths and globs to existing files, sorted within each pattern.

    A file whose name has the characters of a glob, such as "a [2].txt", stands for itself.

    Raises:
      AlbertError: a pattern matches nothing, or a pipe, a device, or a name that is not UTF-8.
    """
    if isinstance(patterns, str):
        patterns = [p.strip() for p in patterns.split(",") if p.strip()]
    if not patterns:
        raise AlbertError(f"No {what} was given.")
    files = []
    for pattern in patterns:
        matches = [pattern] if exists(pattern) else storage.glob(pattern)
        matches = [plain_path(match) for match in matches]
        if not matches:
            raise AlbertError(f"No {what} matches {pattern!r}; check the path.")
        for match in matches:
            if not isdir(match):
                check_file(match, what)
        files += [m for m in matches if m not in files]
    return files


def check_output_folder(path: str) -> None:
    """Raises AlbertError if a local folder cannot be created, or no files in it."""
    if not is_local(path):
        return
    folder = os.path.abspath(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise AlbertError(f"{path} cannot be a folder, because {folder} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AlbertError(f"{path} cannot be written: there is no permission to write to {folder}.")


def check_output(path: str, inputs: Iterable[str] = (), overwrite: bool = False) -> None:
    """Checks that an output file can be written, and neither exists nor is an input.

    The inputs, which the same program reads, are recognised under other names, such as links.

    Raises:
      AlbertError: the file exists or is an input, there is a folder of this name, or a local folder
        cannot be written to.
    """
    read = common_files(inputs, [path])
    if read:
        also = "" if read[0] == path else f" (as {read[0]})"
        raise AlbertError(f"{path} is also an input{also}; give another path for the output.")
    if isdir(path):
        raise AlbertError(f"{path} is a folder; give the path of a file for the output.")
    if exists(path) and not overwrite:
        raise AlbertError(f"{path} already exists; give another path, or set `overwrite`.")
    check_output_folder(os.path.dirname(path) or os.curdir)


def find_only(folder: str, *patterns: str) -> str | None:
    """Returns the only file that matches the first pattern with matches, None without one."""
    names = storage.listdir(folder)  # The folder's own name may hold * or [.
    for pattern in patterns:
        if found := fnmatch.filter(names, pattern):
            return os.path.join(folder, found[0]) if len(found) == 1 else None
    return None


def common_files(paths: Iterable[str], others: Iterable[str]) -> list[str]:
    """Returns those of `paths` that are among `others`, also under other names, such as links."""
    there = set(map(_identity, others))
    return [path for path in paths if _identity(path) in there]


def _identity(path: str) -> object:
    """Returns what identifies a file under any of its names."""
    if not is_local(path):
        return os.path.normpath(path)
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def space_for(what: str) -> Iterator[None]:
    """Turns the errors of a full disk into StoppedError; `what` is written, and where.

    Raises:
      StoppedError: there is no space left. Other errors pass through.
    """
    try:
        yield
    except AlbertError:
        raise
    except Exception as error:
        reason = no_space(error)
        if reason is None:
            raise
        raise StoppedError(
            f"There is no space left for {what} ({reason}); free some, and run the same command "
            "again."
        ) from error


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Yields a temporary name beside `path`; renames the file to `path` on success, or deletes it.

    Raises:
      StoppedError: there is no space left.
    """
    temporary = temporary_name(path)
    with space_for(path):
        try:
            if os.path.dirname(path):
                makedirs(os.path.dirname(path))
            yield temporary
            rename(temporary, path)
        except BaseException:
            remove_temporary(temporary)
            raise


@contextlib.contextmanager
def new_file(path: str, inputs: Iterable[str], overwrite: bool) -> Iterator[str]:
    """Like `atomic_path`, for an output that `check_output` accepts, also when it is complete."""
    check_output(path, inputs, overwrite)
    with atomic_path(path) as temporary:
        yield temporary
        if is_local(path):  # ram:// would take the temporary file for a folder of this name.
            check_output(path, inputs, overwrite)  # Another process may have been faster.


def is_valid_text(text: str) -> bool:
    """Returns whether UTF-8 has all characters of a text; see `valid_text`."""
    return not _SURROGATES.search(text)


def valid_text(text: str) -> str:
    """Replaces halves of surrogate pairs by U+FFFD: JSON can have them, and UTF-8 cannot."""
    return _SURROGATES.sub("\ufffd", text)


def write_bytes(path: str, data: bytes) -> None:
    """Writes `data` to `path`, which is either complete or untouched."""

    def write(temporary) -> None:
        with gfile().GFile(temporary, "wb") as f:
            f.write(data)

    with atomic_path(path) as temporary:
        retried(write, temporary)


def write_text(path: str, text: str) -> None:
    """Writes `text` (UTF-8) to `path`, which is either complete or untouched."""
    write_bytes(path, valid_text(text).encode("utf-8"))


def read_bytes(path: str, what: str = "file") -> bytes:
    """Reads a file whole.

    Raises:
      AlbertError: the file is missing, a folder, or not readable by this user.
    """
    check_file(path, what)

    def read(path) -> bytes:
        with _open(path) as f:
            return f.read()

    return retried(read, path)


def _open(path: str) -> Any:
    return open(path, "rb") if is_local(path) else gfile().GFile(path, "rb")


def read_text(path: str, what: str = "file") -> str:
    """Reads a UTF-8 text file whole.

    Raises:
      AlbertError: the file is missing, a folder or not UTF-8.
    """
    data = read_bytes(path, what)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AlbertError(f"The {what} {path} is not UTF-8 at byte {error.start}.") from error


def json_bytes(value: Any) -> bytes:
    """Returns `value` as indented JSON, keys sorted; numbers that are not finite become null."""
    text = json.dumps(finite_only(value), indent=2, sort_keys=True, ensure_ascii=False)
    return valid_text(text + "\n").encode("utf-8")


def write_json(path: str, value: Any) -> None:
    """Writes `value` as JSON, see `json_bytes`; the file is either complete or untouched."""
    write_bytes(path, json_bytes(value))


def read_json(path: str, what: str = "file") -> Any:
    """Reads a JSON file.

    Raises:
      AlbertError: the file is missing, not UTF-8 or not JSON.
    """
    return parse_json(read_text(path, what), f"The {what} {path}")


def read_object(path: str, what: str = "file") -> dict[str, Any]:
    """Reads a JSON file that holds an object.

    Raises:
      AlbertError: the file is missing, not UTF-8, not JSON or holds another value.
    """
    value = read_json(path, what)
    if not isinstance(value, dict):
        raise AlbertError(f"The {what} {path} is not a JSON object.")
    return value


def join_named(folder: str, name: object, where: str) -> str:
    """Returns the path of a file, or folder, in `folder` whose name was read from the file `where`.

    Raises:
      AlbertError: `name` is not a plain name, but has a path, or is no string at all.
    """
    # No file system allows longer names.
    plain = isinstance(name, str) and name not in ("", ".", "..") and len(name) <= 255
    if not plain or any(c in "/\\" or not c.isprintable() for c in name):
        raise AlbertError(
            f"{where} names {short_repr(name)}, which is not the name of a file beside it."
        )
    return os.path.join(folder, name)


def sha256(path: str) -> str:
    """Returns the hexadecimal SHA-256 of a file's bytes."""

    def digest(path) -> str:
        value = hashlib.sha256()
        with _open(path) as f:
            while block := f.read(1 << 20):
                value.update(block)
        return value.hexdigest()

    return retried(digest, path)
