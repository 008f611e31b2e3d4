# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders: those that appear only when complete, scratch folders, and the files in a folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from albert_tf.errors import AlbertError
from albert_tf.io import files, removal, storage
from albert_tf.io.locks import LOCK_FILE

#: Lists the files that `new_folder` has written, relative to the folder.
WRITTEN_FILES = ".written_files.json"


def check_new_folder(path: str, overwrite: bool) -> None:
    """Checks that `new_folder` can create a folder at `path`; see there.

    Raises:
      AlbertError: there is a file or another folder at `path`, or no permission to write there.
    """
    if files.exists(path):
        if not files.isdir(path) or (_everything_in(path) and not overwrite):
            raise AlbertError(
                f"{path} already exists; delete it, give another path, or set `overwrite` for a "
                "folder that the same program has written."
            )
        _check_written(path, path)
    files.check_output_folder(path)


@contextlib.contextmanager
def new_folder(path: str, overwrite: bool = False, source: str = "") -> Iterator[str]:
    """Yields a temporary folder beside `path`; renames it to `path` on success, or deletes it.

    An old folder at `path` is moved aside first, and moved back if this fails.

    Args:
      path: the folder to create; an empty one may exist.
      overwrite: replace a folder in which this function has written everything, at any depth.
      source: an input, which the folder must not contain.

    Raises:
      AlbertError: `path` exists and may not be replaced, or contains the input.
      StoppedError: there is no space left.
    """
    path = path.rstrip("/")
    if files.is_local(path) and os.path.islink(path):
        path = os.path.realpath(path)
    with files.space_for(path):
        if source and f"{_real(source)}/".startswith(f"{_real(path)}/"):
            raise AlbertError(f"{path} contains the input, {source}; give another path.")
        check_new_folder(path, overwrite)
        temporary = removal.temporary_name(path)
        try:
            storage.makedirs(temporary)
            yield temporary
            files.write_json(os.path.join(temporary, WRITTEN_FILES), names_below(temporary))
            check_new_folder(path, overwrite)  # Somebody may have put something there meanwhile.
            _replace(path, temporary)
        finally:
            removal.remove_temporary(temporary)


def _replace(path: str, new: str) -> None:
    """Moves a new folder to `path`, and deletes the old one once the new one is there."""
    if not files.exists(path):
        removal.move(new, path)
        return
    old = removal.temporary_name(f"{path}.former")
    removal.move(path, old)
    try:
        _check_written(old, path)  # Nobody can put a file there any more.
        removal.move(new, path)
    except BaseException:
        removal.move(old, path)
        raise
    removal.remove_temporary(old)


def _check_written(folder: str, path: str) -> None:
    """Raises AlbertError if a folder, once at `path`, has anything that `new_folder` did not write.

    The list of what it wrote is in the folder.
    """
    others = _everything_in(folder)
    record = os.path.join(folder, WRITTEN_FILES)
    if others and files.exists(record):
        written = files.read_json(record, "list of written files")
        others -= {WRITTEN_FILES, *(name for name in written if isinstance(name, str))}
    if others:
        raise AlbertError(
            f"{path} holds what this program has not written there, such as {min(others)}; "
            "`overwrite` replaces its own files only. Move them away, or give another path."
        )


def _everything_in(folder: str) -> set[str]:
    """Returns the relative paths of what is in a folder: files, links, empty folders; no lock."""
    found = set()
    for path, folders, names in storage.walk(folder):
        here = os.path.relpath(path, folder)
        links = [n for n in folders if os.path.islink(os.path.join(path, n))]
        found |= {os.path.normpath(os.path.join(here, name)) for name in (*names, *links)}
        if path != folder and not folders and not names:
            found.add(here)
    return found - {LOCK_FILE}


def _real(path: str) -> str:
    return os.path.realpath(path) if files.is_local(path) else path.rstrip("/")


@contextlib.contextmanager
def scratch_folder(path: str) -> Iterator[str]:
    """Yields a local folder for files that are read often, and deletes it at the end.

    It is beside `path`, or among the machine's temporary files if `path` is remote.

    Raises:
      StoppedError: there is no space left.
    """
    if not files.is_local(path):
        with files.space_for("temporary files"), tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    folder = removal.temporary_name(path)
    with files.space_for(folder):
        try:
            os.makedirs(folder)
            yield folder
        finally:
            removal.remove_temporary(folder)


def names_below(folder: str) -> list[str]:
    """Returns the relative paths of all files below a folder, sorted; none if it does not exist.

    Locks do not count.
    """
    return sorted(
        os.path.relpath(os.path.join(path, name), folder)
        for path, _, names in storage.walk(folder)
        for name in names
        if name != LOCK_FILE
    )


def copy_folder(source: str, target: str) -> None:
    """Copies all files below `source` to the same places below `target`."""
    for name in names_below(source):
        path = os.path.join(target, name)
        files.gfile().makedirs(os.path.dirname(path))
        files.gfile().copy(os.path.join(source, name), path)
