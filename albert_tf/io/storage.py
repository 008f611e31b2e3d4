# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls of the file system that are tried again while their error may pass.

A call that finds nothing at a path has an answer. Any other error (unavailable, quota exhausted, no
permission, input/output error, …) says nothing about the files, so nobody may conclude from it that
a file is missing or damaged. Local paths need no TensorFlow.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any

from albert_tf.errors import AlbertError, StoppedError, first_line
from albert_tf.io.log import log

#: Seconds before the second try, the third one, and so on.
PAUSES = (0.3, 1.0, 3.0)
#: Begins a path on another file system: gs://, hdfs://, ram://, …
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9.+-]*://")
#: Error messages of the system when a disk is full or a quota or file size limit is reached.
_NO_SPACE = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)))
#: Errors that do not pass by themselves.
_FINAL = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL,
    errno.ENAMETOOLONG, errno.ELOOP, errno.EPIPE, errno.EROFS, errno.EXDEV, errno.ENOSYS,
}  # fmt: skip
#: The same as codes of TensorFlow: cancelled, invalid argument, not found, already exists, out of
#: range, unimplemented, data loss. The failed precondition stands for several errors of the system.
_FINAL_CODES, _PRECONDITION = {1, 3, 5, 6, 11, 12, 15}, 9
_WRONG_KIND = tuple(map(os.strerror, (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY)))

#: TensorFlow's codes that only remote file systems give: deadline exceeded, permission denied,
#: resource exhausted, unavailable, unauthenticated.
_REMOTE_CODES = {4, 7, 8, 14, 16}


def gfile() -> Any:
    """Returns tf.io.gfile; functions that need it import TensorFlow when they are called."""
    import tensorflow as tf

    return tf.io.gfile


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine's file system: it has no scheme, such as gs://."""
    return not _SCHEME.match(path)


def no_space(error: BaseException | None) -> str | None:
    """Returns the system's message if an error means a full disk or quota, else None.

    Python and TensorFlow raise different classes, but quote the same message. Closing a file that
    could not be written may raise again, hence the errors behind it are searched too.
    """
    while error is not None:
        for text in _NO_SPACE:
            if text in str(error):
                return text
        error = error.__cause__ or error.__context__
    return None


def may_pass(error: BaseException) -> bool:
    """Returns whether an error says nothing about the files, so that trying again may help."""
    if isinstance(error, AlbertError) or no_space(error):
        return False
    if isinstance(error, OSError):
        return error.errno is not None and error.errno not in _FINAL
    code = getattr(error, "error_code", 1)  # Of tf.errors.OpError.
    if code == _PRECONDITION:  # "is not a directory" may also mean that it could not be looked at.
        return not str(error).endswith(_WRONG_KIND)
    return code not in _FINAL_CODES


def retried(operation: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `operation(*arguments)`, again after growing pauses if it fails for the moment.

    `operation` changes nothing if it fails, or can be repeated; its first argument is the path.

    Raises:
      StoppedError: it failed each time. Other errors pass through.
    """
    for pause in (*PAUSES, None):
        try:
            return operation(*arguments)
        except Exception as error:
            if not may_pass(error):
                if "File system scheme" not in str(error):
                    raise
                raise AlbertError(
                    f"{first_line(error)}; copy the files to this machine or to gs://, or import "
                    "the package that lets TensorFlow read them."
                ) from error
            reason = _reason(error)
            if pause is None:
                raise StoppedError(
                    f"{reason}, {len(PAUSES) + 1} times in a row; nothing that was written before "
                    "has changed. Mend that, or wait, and run the same command again."
                ) from error
        log.warning(f"{reason}; trying again in {pause:g} s.")
        time.sleep(pause)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.strerror}: {os.fsdecode(error.filename)}"
    return first_line(error).rstrip(".")


def failure(error: BaseException) -> str | None:
    """Returns what the file system has reported; None if an error has another cause."""
    if isinstance(error, OSError):
        return _reason(error)
    text, code = _reason(error), getattr(error, "error_code", None)
    return text if code in _REMOTE_CODES or (code and system_message(text)) else None


def system_message(text: str) -> str | None:
    """Returns the system's own message that a text contains, such as "Input/output error"."""
    return next((m for m in map(os.strerror, errno.errorcode) if m in text), None)


def _mode(path: str) -> int:
    """Returns the mode of a local file or folder; 0 if there is none."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return 0
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            return 0
        raise


def exists(path: str) -> bool:
    """Returns whether there is a file or folder at a path; see `retried` about errors."""
    # Not os.path.exists and, for local paths, tf.io.gfile.exists: they take any error for a no.
    return bool(retried(_mode, path)) if is_local(path) else retried(gfile().exists, path)


def isdir(path: str) -> bool:
    """Returns whether there is a folder at a path; see `retried` about errors."""
    if is_local(path):
        return stat.S_ISDIR(retried(_mode, path))
    return retried(gfile().isdir, path)


def listdir(folder: str) -> list[str]:
    """Returns the names in a folder, sorted; none if it does not exist."""
    if not isdir(folder):
        return []
    names = retried(os.listdir if is_local(folder) else gfile().listdir, folder)
    return sorted(name.rstrip("/") for name in names)


def glob(pattern: str) -> list[str]:
    """Returns the paths that match a pattern of tf.io.gfile, sorted.

    Raises:
      AlbertError: a name beside them is not UTF-8.
    """
    try:
        return sorted(retried(gfile().glob, pattern))
    except UnicodeDecodeError as error:
        raise AlbertError(
            f"A name beside those that {pattern!r} matches is not UTF-8; rename that file."
        ) from error


def size(path: str) -> int:
    """Returns the size of a file in bytes."""
    return retried(gfile().stat, path).length


def walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields each folder from this one down, its folders and its files, as os.walk does.

    Links are not followed, and errors are raised.
    """

    def fail(error) -> None:
        raise error

    if is_local(folder):
        yield from os.walk(folder, onerror=fail) if isdir(folder) else ()
        return
    for path, folders, names in gfile().walk(folder, onerror=fail) if isdir(folder) else ():
        # ram:// also lists the ends of longer names, such as .tmp-1 of the folder's name.tmp-1.
        yield path, folders, [name for name in names if exists(os.path.join(path, name))]


def makedirs(folder: str) -> None:
    """Creates a folder and those above it, unless they exist."""

    def once(folder) -> None:
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError:  # Or it could not be looked at for a moment.
            if not isdir(folder):
                raise

    retried(once if is_local(folder) else gfile().makedirs, folder)


def rename(source: str, target: str) -> None:
    """Renames a file, or a local folder; a file at `target` is replaced."""

    tried = False

    def once(source, target) -> None:
        nonlocal tried
        if tried and not exists(source):
            return  # The try that failed has moved it all the same, as remote ones may.
        tried = True
        gfile().rename(source, target, overwrite=True)

    retried(once, source, target)
