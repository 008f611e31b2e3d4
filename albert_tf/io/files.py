# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Files through tf.io.gfile: names, globs, atomic writes, checksums.

TensorFlow is imported inside the functions: scripts answer ``--help`` without it. What looks at
local paths or reads a whole local file does not need it, so that bad input is refused at once.
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
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.json_values import finite_only, parse_json, shown
from albert_tf.io.locks import is_lock_file, lock_output

#: What systems say when a file cannot grow: of the disk, of a quota, of the process.
_NO_SPACE = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
#: What the functions below make, and TensorFlow beside its list of checkpoints.
_TEMPORARY = re.compile(r"\.tmp-?[0-9a-f]{8,32}$")
#: How TensorFlow tells a path on another file system: gs://, hdfs://, ram://, …
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9.+-]*://")


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def path_of(path: Any, what: str) -> str:
    """A path as a string.

    Args:
      path: a string or a path object.
      what: lies there, for the error.

    Raises:
      AlbertError: it is something else, or empty.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text:
        raise AlbertError(f"The path of the {what} must be a string, not {shown(path)}.")
    return text


def is_local(path: str) -> bool:
    """Whether a path is on this machine's own file system: it has no scheme, such as gs://."""
    return not _SCHEME.match(path)


def exists(path: str) -> bool:
    """Whether there is a file or folder at a path."""
    return os.path.exists(path) if is_local(path) else _gfile().exists(path)


def isdir(path: str) -> bool:
    """Whether there is a folder at a path."""
    return os.path.isdir(path) if is_local(path) else _gfile().isdir(path)


def check_file(path: str, what: str = "file") -> None:
    """Raises AlbertError unless there is a file at `path`; `what` says what it is."""
    if not exists(path):
        raise AlbertError(f"The {what} {path} does not exist.")
    if isdir(path):
        raise AlbertError(f"The {what} {path} is a folder; give a file.")


def check_folder(path: str, what: str = "folder") -> None:
    """Raises AlbertError unless there is a folder at `path`; `what` says what it is."""
    if not exists(path):
        raise AlbertError(f"The {what} {path} does not exist.")
    if not isdir(path):
        raise AlbertError(f"The {what} {path} is a file; give a folder.")


def check_pattern(pattern: str, what: str = "input file") -> None:
    """Raises AlbertError if a local path or glob matches nothing; `what` says what it is."""
    if not _matches_something(pattern):
        raise _no_match(pattern, what)


def check_new_folder(path: str, overwrite: bool = False) -> None:
    """Raises AlbertError unless a folder can be made at `path`.

    An empty folder may be there, and with `overwrite` one that the same program has made.
    """
    path = path.rstrip("/")
    if exists(path) and (not isdir(path) or (_names(path) and not overwrite)):
        raise AlbertError(
            f"{path} is there already; delete it, give another path, or set --overwrite for a "
            "folder that the same program has made."
        )
    check_output_folder(path)


def check_output_folder(path: str) -> None:
    """Raises AlbertError if a local folder cannot be made, or no files in it."""
    if not is_local(path):
        return
    folder = os.path.abspath(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise AlbertError(f"{path} cannot be a folder, as {folder} is not one.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AlbertError(f"{path} cannot be written: there is no permission to write to {folder}.")


def check_output_file(path: str, overwrite: bool = True) -> None:
    """Raises AlbertError if a file cannot be written, or is there already without `overwrite`."""
    check_output(path, (), overwrite)
    check_output_folder(os.path.dirname(path) or ".")


def _matches_something(pattern: str) -> bool:
    """Whether a local path or glob matches anything. If only TensorFlow can tell, True."""
    if any(c in pattern for c in "[\\"):
        return True  # Python reads brackets and backslashes a little differently.
    if not glob.has_magic(pattern):
        return os.path.exists(pattern)
    # Not glob.glob for the last part, where, unlike TensorFlow, it passes over hidden files.
    folder, name = os.path.split(pattern)
    folders = glob.glob(folder) if glob.has_magic(folder) else [folder or "."]
    names = (other for f in folders if os.path.isdir(f) for other in os.listdir(f))
    return any(fnmatch.fnmatchcase(other, name) for other in names)


def _no_match(pattern: str, what: str) -> AlbertError:
    return AlbertError(f"No {what} matches {pattern!r}; check the path.")


def expand_globs(patterns: str | list[str], what: str = "input file") -> list[str]:
    """Expands a comma list of paths and globs to existing files, sorted within each pattern.

    Raises:
      AlbertError: a pattern matches nothing.
    """
    if isinstance(patterns, str):
        patterns = [p.strip() for p in patterns.split(",") if p.strip()]
    if not patterns:
        raise AlbertError(f"No {what} was given.")
    files: list[str] = []
    for pattern in patterns:
        matches = sorted(_gfile().glob(pattern))
        if not matches:
            raise _no_match(pattern, what)
        files += [m for m in matches if m not in files]
    return files


@contextlib.contextmanager
def space_for(what: str) -> Iterator[None]:
    """Makes one sentence of a full disk.

    Args:
      what: is written, and where to.

    Raises:
      StoppedError: there is no space left. Other errors pass.
    """
    try:
        yield
    except AlbertError:
        raise
    except Exception as error:
        # Python's errors and TensorFlow's have in common only what the system said. Closing a file
        # that could not be written may be an error again.
        said = " ".join(map(str, _with_context(error)))
        reason = next((text for text in _NO_SPACE if text in said), None)
        if reason is None:
            raise
        raise StoppedError(
            f"There is no space left for {what} ({reason}); make some, and run the same command "
            "again."
        ) from error


def _with_context(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Yields a temporary name beside `path`; on success renames it to `path`, else deletes it.

    Raises:
      StoppedError: there is no space left.
    """
    gfile = _gfile()
    temporary = f"{path}.tmp-{uuid.uuid4().hex[:8]}"
    with space_for(path):
        try:
            if os.path.dirname(path):
                gfile.makedirs(os.path.dirname(path))
            yield temporary
            gfile.rename(temporary, path, overwrite=True)
        except BaseException:
            if gfile.exists(temporary):
                gfile.remove(temporary)
            raise


def check_output(path: str, inputs: Iterable[str] = (), overwrite: bool = False) -> None:
    """Refuses a file to be written that is there already, or that is read.

    Args:
      path: of the file.
      inputs: the files that the same program reads, by whatever names: links are followed.
      overwrite: accept a file that is there, unless it is one of the inputs.

    Raises:
      AlbertError: it is refused, or there is a folder of this name.
    """
    read = common_files(inputs, [path])
    if read:
        also = "" if read[0] == path else f" (as {read[0]})"
        raise AlbertError(f"{path} is read as well{also}; give another path for the output.")
    if isdir(path):
        raise AlbertError(f"{path} is a folder; give the path of a file for the output.")
    if exists(path) and not overwrite:
        raise AlbertError(f"{path} is there already; give another path, or set --overwrite.")


def common_files(paths: Iterable[str], others: Iterable[str]) -> list[str]:
    """Those of `paths` that are among the others too, under whatever names; links are followed."""
    known: set[object] = set()
    for other in others:
        known |= _identities(other)
    return [path for path in paths if known & _identities(path)]


def _identities(path: str) -> set[object]:
    """What a file can be recognised by under another name."""
    scheme, separator, rest = path.rpartition("://")
    if separator:
        return {scheme + separator + os.path.normpath(rest)}
    same: set[object] = {os.path.realpath(path)}
    with contextlib.suppress(OSError):
        status = os.stat(path)
        if status.st_ino:  # Some mounts number no files.
            same.add((status.st_dev, status.st_ino))
    return same


@contextlib.contextmanager
def claimed_output(
    path: str, inputs: Iterable[str] = (), overwrite: bool = False
) -> Iterator[None]:
    """Keeps other processes from writing a file while it is written; see `check_output`.

    Raises:
      AlbertError: as `check_output` and `lock_output`.
    """
    with lock_output(path, "writing"):
        check_output(path, inputs, overwrite)
        yield


@contextlib.contextmanager
def new_folder(path: str, overwrite: bool = False, source: str = "") -> Iterator[str]:
    """Yields a temporary folder beside `path`; on success renames it to `path`, else deletes it.

    Args:
      path: of the folder. An empty one may be there.
      overwrite: replace a folder that holds the same names as the new one, or some of them.
      source: a path that is read to make it.

    Raises:
      AlbertError: there is something else at `path`, or what is read; another process makes it.
      StoppedError: there is no space left.
    """
    path = path.rstrip("/")
    if "://" not in path and os.path.islink(path):
        path = os.path.realpath(path)
    with lock_output(path, "writing"), space_for(path):
        there = _replaceable(path, overwrite, source)
        temporary = f"{path}.tmp-{uuid.uuid4().hex[:8]}"
        gfile = _gfile()
        try:
            gfile.makedirs(temporary)
            yield temporary
            others = there - _names(temporary)
            if others:
                raise AlbertError(
                    f"{path} holds more than is to be overwritten, {min(others)}; delete it, or "
                    "give another path."
                )
            if there:
                _delete(path, there)
            # File systems whose folders are no more than beginnings of names may take the
            # temporary folder for this one, and move no files with it.
            gfile.rename(temporary, path, overwrite=True)
            for name in names_below(temporary):
                target = os.path.join(path, name)
                gfile.makedirs(os.path.dirname(target))
                gfile.rename(os.path.join(temporary, name), target)
        except BaseException:
            if gfile.exists(temporary):
                gfile.rmtree(temporary)
            raise


@contextlib.contextmanager
def scratch_folder(path: str) -> Iterator[str]:
    """Yields a folder of this machine for copies that are read often, and deletes it at the end.

    It is beside `path`, where `remove_temporary` finds it if the process is killed, or among the
    machine's temporary files if `path` is on a remote file system.

    Raises:
      StoppedError: there is no space left.
    """
    if "://" in path:
        with space_for("temporary files"), tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    folder = f"{path}.tmp-{uuid.uuid4().hex[:8]}"
    with space_for(folder):
        try:
            os.makedirs(folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _replaceable(path: str, overwrite: bool, source: str) -> set[str]:
    """The names in the folder that a new one takes the place of; AlbertError if it may not."""
    check_new_folder(path, overwrite)
    there = _names(path) if isdir(path) else set()
    if not there and exists(path):
        _gfile().rmtree(path)
    if source and any(_identities(path) & _identities(at) for at in _upwards(source)):
        raise AlbertError(f"{path} holds what is read, {source}; give another path.")
    for left in _temporaries_of(path):
        print(f"{left} is of an attempt that was killed; delete it.")
    return there


def _delete(folder: str, names: Iterable[str]) -> None:
    """Deletes a folder that holds these names."""
    gfile = _gfile()
    if "://" not in folder:
        gfile.rmtree(folder)
        return
    # Where folders are no more than beginnings of names, the temporary ones may look like a part.
    for name in names:
        path = os.path.join(folder, name)
        gfile.rmtree(path) if gfile.isdir(path) else gfile.remove(path)


def _names(folder: str) -> set[str]:
    """What lies in a folder."""
    names = os.listdir(folder) if is_local(folder) else _gfile().listdir(folder)
    names = (name.rstrip("/") for name in names)
    return {name for name in names if not is_lock_file(name)}


def _upwards(path: str) -> Iterator[str]:
    """A path and the folders that it lies in."""
    path = path if "://" in path else os.path.realpath(path)
    while path:
        yield path
        path, below = os.path.dirname(path), path
        if path == below:
            return


def _temporaries_of(path: str) -> list[str]:
    """What there is of `atomic_path` and `new_folder` beside a path, of others too."""
    folder, name = os.path.split(path)
    begin = f"{name}.tmp-"
    there = _gfile().listdir(folder or ".") if _gfile().isdir(folder or ".") else []
    return [os.path.join(folder, other.rstrip("/")) for other in there if other.startswith(begin)]


def remove_temporary(folder: str) -> None:
    """Deletes what writers that were killed left in a folder: temporary files and folders.

    Those of `atomic_path`, `new_folder` and `scratch_folder`, and of TensorFlow's list of
    checkpoints. For folders that no other process writes to.
    """
    gfile = _gfile()
    for name in gfile.listdir(folder) if gfile.isdir(folder) else []:
        path = os.path.join(folder, name.rstrip("/"))
        if _TEMPORARY.search(path):
            gfile.rmtree(path) if gfile.isdir(path) else gfile.remove(path)


def names_below(folder: str) -> list[str]:
    """All files below a folder, by their paths from there, sorted; none if there is no folder.

    Locks are not counted: they are no one's results.
    """
    return sorted(
        os.path.relpath(os.path.join(path, name), folder)
        for path, _, names in _gfile().walk(folder)
        for name in names
        if not is_lock_file(name)
    )


def copy_folder(source: str, target: str) -> None:
    """Copies all files below `source` to the same places below `target`."""
    for name in names_below(source):
        path = os.path.join(target, name)
        _gfile().makedirs(os.path.dirname(path))
        _gfile().copy(os.path.join(source, name), path)


def write_bytes(path: str, data: bytes) -> None:
    """Writes `data` to `path`, which is either complete or untouched."""
    with atomic_path(path) as temporary, _gfile().GFile(temporary, "wb") as f:
        f.write(data)


def write_text(path: str, text: str) -> None:
    """Writes `text` (UTF-8) to `path`, which is either complete or untouched."""
    write_bytes(path, text.encode("utf-8"))


def read_bytes(path: str, what: str = "file") -> bytes:
    """Reads a file whole.

    Raises:
      AlbertError: the file is missing, a folder or not to be read by this user.
    """
    check_file(path, what)
    if not is_local(path):
        with _gfile().GFile(path, "rb") as f:
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
    """The path of the file, or folder, in `folder` that the content of a file names.

    Nothing else is allowed: no absolute path, no folders, no way up.

    Args:
      folder: where the file must lie.
      name: what was read.
      where: the file it was read from, for the error.

    Raises:
      AlbertError: `name` is no plain name.
    """
    # No file system allows longer names; an error would quote them whole.
    plain = isinstance(name, str) and name not in ("", ".", "..") and len(name) <= 255
    if not plain or any(c in "/\\" or not c.isprintable() for c in name):
        raise AlbertError(
            f"{where} names {shown(name)}, which is not the name of a file beside it."
        )
    return os.path.join(folder, name)


def sha256(path: str) -> str:
    """Hex SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with _gfile().GFile(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
