# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Files through tf.io.gfile: names, globs, atomic writes, JSON, checksums.

The functions import TensorFlow only where they need it: not for ``--help``, nor for checking local
paths and reading local files, so that bad input is refused at once.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.json_values import finite_only, parse_json, shown
from albert_tf.io.locks import LOCK_FILE, lock_output

#: Error messages of the system when a disk is full or a quota or file size limit is reached.
_NO_SPACE = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_SURROGATES = re.compile("[\ud800-\udfff]")
#: Names of our temporary files and folders, and of those TensorFlow writes beside `checkpoint`.
_TEMPORARY = re.compile(r"\.tmp-?[0-9a-f]{8,32}$")
#: Begins a path on another file system: gs://, hdfs://, ram://, …
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9.+-]*://")


def gfile() -> Any:
    """Returns tf.io.gfile; functions that need it import TensorFlow when they are called."""
    import tensorflow as tf

    return tf.io.gfile


def path_of(path: Any, what: str) -> str:
    """Returns a path as a string.

    Args:
      path: a string or a path object.
      what: what the path leads to, for the error.

    Raises:
      AlbertError: `path` has another type, is empty, or is not UTF-8.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text:
        raise AlbertError(f"The path of the {what} must be a string, not {shown(path)}.")
    if not is_valid_text(text):
        raise AlbertError(
            f"The path of the {what} is not UTF-8 ({shown(text)}), as TensorFlow needs it; rename "
            "the files."
        )
    return text


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine's file system: it has no scheme, such as gs://."""
    return not _SCHEME.match(path)


def exists(path: str) -> bool:
    """Returns whether there is a file or folder at a path.

    Raises:
      AlbertError: this user may not look into its folder.
    """
    if not is_local(path):
        return gfile().exists(path)
    try:
        os.stat(path)
    except PermissionError as error:
        raise AlbertError(f"{path} cannot be read: {error.strerror}.") from error
    except (OSError, ValueError):
        return False
    return True


def isdir(path: str) -> bool:
    """Returns whether there is a folder at a path."""
    return os.path.isdir(path) if is_local(path) else gfile().isdir(path)


def check_file(path: str, what: str = "file") -> None:
    """Raises AlbertError unless there is a file at `path`; `what` describes it."""
    if not exists(path):
        raise AlbertError(f"The {what} {path} does not exist.")
    if isdir(path):
        raise AlbertError(f"The {what} {path} is a folder; give a file.")


def check_folder(path: str) -> None:
    """Raises AlbertError unless there is a folder at `path`."""
    if not exists(path):
        raise AlbertError(f"The folder {path} does not exist.")
    if not isdir(path):
        raise AlbertError(f"The folder {path} is a file; give a folder.")


def check_pattern(pattern: str, what: str = "input file") -> None:
    """Raises AlbertError if a local path or glob matches nothing; `what` describes the files."""
    if not _matches_something(pattern):
        raise _no_match(pattern, what)


def _matches_something(pattern: str) -> bool:
    """Returns whether a local path or glob matches anything; True if only TensorFlow can tell."""
    if any(c in pattern for c in "[\\"):
        return True  # Python treats brackets and backslashes slightly differently.
    if not glob.has_magic(pattern):
        return exists(pattern)
    # Not glob.glob for the last part: unlike TensorFlow it skips hidden files.
    folder, name = os.path.split(pattern)
    folders = glob.glob(folder) if glob.has_magic(folder) else [folder or "."]
    names = (other for f in folders if os.path.isdir(f) for other in os.listdir(f))
    return any(fnmatch.fnmatchcase(other, name) for other in names)


def _no_match(pattern: str, what: str) -> AlbertError:
    return AlbertError(f"No {what} matches {pattern!r}; check the path.")


def expand_globs(patterns: str | list[str], what: str = "input file") -> list[str]:
    """Expands a comma list of paths and globs to existing files, sorted within each pattern.

    A file whose name has the characters of a glob, such as "a [2].txt", stands for itself.

    Raises:
      AlbertError: a pattern matches nothing, or a name that is not UTF-8.
    """
    if isinstance(patterns, str):
        patterns = [p.strip() for p in patterns.split(",") if p.strip()]
    if not patterns:
        raise AlbertError(f"No {what} was given.")
    files: list[str] = []
    for pattern in patterns:
        try:
            matches = [pattern] if exists(pattern) else sorted(gfile().glob(pattern))
        except UnicodeDecodeError as error:
            raise AlbertError(
                f"A name beside those that {pattern!r} matches is not UTF-8; rename that file."
            ) from error
        if not matches:
            raise _no_match(pattern, what)
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
    """Checks that an output file neither exists nor is an input.

    Args:
      path: the file to be written.
      inputs: the files that the same program reads; recognised under other names, such as links.
      overwrite: accept an existing file, unless it is one of the inputs.

    Raises:
      AlbertError: the file exists or is an input, or there is a folder of this name.
    """
    read = common_files(inputs, [path])
    if read:
        also = "" if read[0] == path else f" (as {read[0]})"
        raise AlbertError(f"{path} is also an input{also}; give another path for the output.")
    if isdir(path):
        raise AlbertError(f"{path} is a folder; give the path of a file for the output.")
    if exists(path) and not overwrite:
        raise AlbertError(f"{path} already exists; give another path, or set `overwrite`.")


def check_output_file(path: str, overwrite: bool = True) -> None:
    """Raises AlbertError if a file cannot be written, or exists and `overwrite` is False."""
    check_output(path, (), overwrite)
    check_output_folder(os.path.dirname(path) or ".")


def find_only(folder: str, *patterns: str) -> str | None:
    """Returns the only file that matches the first pattern with matches, None without one."""
    for pattern in patterns:
        paths = gfile().glob(os.path.join(folder, pattern))
        if paths:
            return paths[0] if len(paths) == 1 else None
    return None


def common_files(paths: Iterable[str], others: Iterable[str]) -> list[str]:
    """Returns those of `paths` that are among `others`, also under other names, such as links."""
    identities: set[object] = set()
    for other in others:
        identities |= _identities(other)
    return [path for path in paths if identities & _identities(path)]


def _identities(path: str) -> set[object]:
    """Returns what identifies a file under any of its names."""
    scheme, separator, rest = path.rpartition("://")
    if separator:
        return {scheme + separator + os.path.normpath(rest)}
    identities: set[object] = {os.path.realpath(path)}
    with contextlib.suppress(OSError):
        status = os.stat(path)
        if status.st_ino:  # Some mounts have no inode numbers.
            identities.add((status.st_dev, status.st_ino))
    return identities


@contextlib.contextmanager
def claimed_output(
    path: str, inputs: Iterable[str] = (), overwrite: bool = False
) -> Iterator[None]:
    """Checks an output file with `check_output` and locks it for this process.

    Raises:
      AlbertError: as `check_output` and `lock_output`.
    """
    with lock_output(path, "writing"):
        check_output(path, inputs, overwrite)
        folder, name = os.path.split(path)
        remove_temporary(folder or os.curdir, f"{name}.tmp")
        yield


@contextlib.contextmanager
def space_for(what: str) -> Iterator[None]:
    """Turns the errors of a full disk into StoppedError.

    Args:
      what: what is written, and where.

    Raises:
      StoppedError: there is no space left. Other errors pass through.
    """
    try:
        yield
    except AlbertError:
        raise
    except Exception as error:
        # Python and TensorFlow raise different classes, but quote the system's message. Closing a
        # file that could not be written may raise again, hence the context.
        messages = " ".join(map(str, _with_context(error)))
        reason = next((text for text in _NO_SPACE if text in messages), None)
        if reason is None:
            raise
        raise StoppedError(
            f"There is no space left for {what} ({reason}); free some, and run the same command "
            "again."
        ) from error


def _with_context(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def temporary_name(path: str) -> str:
    """Returns a name beside `path` that `remove_temporary` recognises."""
    return f"{path}.tmp-{uuid.uuid4().hex[:8]}"


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Yields a temporary name beside `path`; renames the file to `path` on success, or deletes it.

    Raises:
      StoppedError: there is no space left.
    """
    tf_files = gfile()
    temporary = temporary_name(path)
    with space_for(path):
        try:
            if os.path.dirname(path):
                tf_files.makedirs(os.path.dirname(path))
            yield temporary
            tf_files.rename(temporary, path, overwrite=True)
        except BaseException:
            if tf_files.exists(temporary):
                tf_files.remove(temporary)
            raise


def remove(path: str) -> None:
    """Deletes a file, or a folder with everything in it."""
    tf_files = gfile()
    tf_files.rmtree(path) if tf_files.isdir(path) else tf_files.remove(path)


def remove_temporary(folder: str, name: str = "") -> None:
    """Deletes the temporary files and folders that killed processes left in a folder.

    They are those of `temporary_name`, and of TensorFlow's list of checkpoints.

    Args:
      folder: to which no other process writes.
      name: how the names of the files begin; other processes may write others.
    """
    tf_files = gfile()
    for other in tf_files.listdir(folder) if tf_files.isdir(folder) else []:
        path = os.path.join(folder, other.rstrip("/"))
        # A lock's temporary file is in use.
        if _TEMPORARY.search(path) and other.startswith(name) and f"{LOCK_FILE}.tmp" not in other:
            remove(path)


def is_valid_text(text: str) -> bool:
    """Returns whether UTF-8 has all characters of a text; see `valid_text`."""
    return not _SURROGATES.search(text)


def valid_text(text: str) -> str:
    """Replaces halves of surrogate pairs by U+FFFD: JSON can have them, and UTF-8 cannot."""
    return _SURROGATES.sub("\ufffd", text)


def write_bytes(path: str, data: bytes) -> None:
    """Writes `data` to `path`, which is either complete or untouched."""
    with atomic_path(path) as temporary, gfile().GFile(temporary, "wb") as f:
        f.write(data)


def write_text(path: str, text: str) -> None:
    """Writes `text` (UTF-8) to `path`, which is either complete or untouched."""
    write_bytes(path, valid_text(text).encode("utf-8"))


def read_bytes(path: str, what: str = "file") -> bytes:
    """Reads a file whole.

    Raises:
      AlbertError: the file is missing, a folder, or not readable by this user.
    """
    check_file(path, what)
    if not is_local(path):
        with gfile().GFile(path, "rb") as f:
            return f.read()
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as error:
        raise AlbertError(f"The {what} {path} cannot be read: {error.strerror}.") from error


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


def write_json(path: str, value: Any) -> None:
    """Writes `value` as indented JSON with sorted keys, atomically.

    Numbers that are not finite become null.
    """
    text = json.dumps(finite_only(value), indent=2, sort_keys=True, ensure_ascii=False)
    write_text(path, text + "\n")


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
    """Returns the path of a file, or folder, in `folder` whose name was read from another file.

    Args:
      folder: where the file must be.
      name: the name that was read.
      where: the file it was read from, for the error.

    Raises:
      AlbertError: `name` is not a plain name, but has a path, or is no string at all.
    """
    # No file system allows longer names.
    plain = isinstance(name, str) and name not in ("", ".", "..") and len(name) <= 255
    if not plain or any(c in "/\\" or not c.isprintable() for c in name):
        raise AlbertError(
            f"{where} names {shown(name)}, which is not the name of a file beside it."
        )
    return os.path.join(folder, name)


def sha256(path: str) -> str:
    """Returns the hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") if is_local(path) else gfile().GFile(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
