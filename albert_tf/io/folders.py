# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders: those that appear only when complete, scratch folders, and the files in a folder."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.locks import is_lock_file, lock_output


def check_new_folder(path: str, overwrite: bool = False) -> None:
    """Checks that `new_folder` can create a folder at `path`.

    Args:
      path: the folder; an empty one may exist.
      overwrite: accept a folder that is not empty.

    Raises:
      AlbertError: there is a file or another folder at `path`, or no permission to write there.
    """
    path = path.rstrip("/")
    if files.exists(path) and (not files.isdir(path) or (_names(path) and not overwrite)):
        raise AlbertError(
            f"{path} already exists; delete it, give another path, or set `overwrite` for a folder "
            "that the same program has written."
        )
    files.check_output_folder(path)


@contextlib.contextmanager
def new_folder(path: str, overwrite: bool = False, source: str = "") -> Iterator[str]:
    """Yields a temporary folder beside `path`; renames it to `path` on success, or deletes it.

    Args:
      path: the folder to create; an empty one may exist.
      overwrite: replace a folder that contains no other names than the new one.
      source: an input, which the folder must not contain.

    Raises:
      AlbertError: `path` exists and may not be replaced, or contains the input; another process
        writes it.
      StoppedError: there is no space left.
    """
    gfile = files.gfile()
    path = path.rstrip("/")
    if files.is_local(path) and os.path.islink(path):
        path = os.path.realpath(path)
    with lock_output(path, "writing"), files.space_for(path):
        check_new_folder(path, overwrite)
        if source and files.common_files([path], _with_parents(source)):
            raise AlbertError(f"{path} contains the input, {source}; give another path.")
        old_names = _names(path) if files.isdir(path) else set()
        if not old_names and files.exists(path):
            gfile.rmtree(path)
        _report_leftovers(path)
        temporary, replaces = files.temporary_name(path), False
        try:
            gfile.makedirs(temporary)
            yield temporary
            kept = old_names - _names(temporary)
            if kept:
                raise AlbertError(
                    f"{path} contains more than this would replace, such as {min(kept)}; delete "
                    "it, or give another path."
                )
            if files.is_local(path):
                _move_folder(temporary, path)
            else:
                replaces = bool(old_names)
                _move_files(temporary, path, old_names)
        except BaseException:
            # If old files may have been deleted, the new ones may be all that is left.
            if not replaces and files.exists(temporary):
                gfile.rmtree(temporary)
            raise


def _move_folder(source: str, target: str) -> None:
    """Renames a local folder. It replaces a folder at the target, which is kept if this fails."""
    if not os.path.exists(target):
        os.rename(source, target)
        return
    replaced = files.temporary_name(target)
    os.rename(target, replaced)
    try:
        os.rename(source, target)
    except BaseException:
        os.rename(replaced, target)
        raise
    shutil.rmtree(replaced)


def _move_files(source: str, target: str, old_names: Iterable[str]) -> None:
    """Moves a folder where folders are only prefixes of names, and deletes what is at the target.

    rmtree could delete the source too, and renaming a folder may move no files.
    """
    for name in old_names:
        files.remove(os.path.join(target, name))
    gfile = files.gfile()
    gfile.rename(source, target, overwrite=True)
    for name in names_below(source):
        path = os.path.join(target, name)
        gfile.makedirs(os.path.dirname(path))
        gfile.rename(os.path.join(source, name), path)


def _with_parents(path: str) -> list[str]:
    """Returns a path and the folders that contain it."""
    scheme, separator, rest = path.rpartition("://")
    pure = pathlib.PurePosixPath(rest if separator else os.path.realpath(path))
    return [f"{scheme}{separator}{part}" for part in (pure, *pure.parents)]


def _report_leftovers(path: str) -> None:
    """Prints the temporary files and folders beside `path` that killed processes left."""
    folder, name = os.path.split(path)
    folder = folder or "."
    for other in files.gfile().listdir(folder) if files.isdir(folder) else []:
        if other.startswith(f"{name}.tmp-"):
            left = os.path.join(folder, other.rstrip("/"))
            print(f"{left} was left by a process that was killed; delete it.")


@contextlib.contextmanager
def scratch_folder(path: str) -> Iterator[str]:
    """Yields a local folder for files that are read often, and deletes it at the end.

    It is beside `path`, where `files.remove_temporary` finds it if the process is killed, or among
    the machine's temporary files if `path` is on a remote file system.

    Raises:
      StoppedError: there is no space left.
    """
    if not files.is_local(path):
        with files.space_for("temporary files"), tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    folder = files.temporary_name(path)
    with files.space_for(folder):
        try:
            os.makedirs(folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _names(folder: str) -> set[str]:
    """Returns the names in a folder, except locks."""
    names = os.listdir(folder) if files.is_local(folder) else files.gfile().listdir(folder)
    return {name.rstrip("/") for name in names if not is_lock_file(name.rstrip("/"))}


def names_below(folder: str) -> list[str]:
    """Returns the relative paths of all files below a folder, sorted; none if it does not exist.

    Locks do not count.
    """
    return sorted(
        os.path.relpath(os.path.join(path, name), folder)
        for path, _, names in files.gfile().walk(folder)
        for name in names
        if not is_lock_file(name)
    )


def copy_folder(source: str, target: str) -> None:
    """Copies all files below `source` to the same places below `target`."""
    for name in names_below(source):
        path = os.path.join(target, name)
        files.gfile().makedirs(os.path.dirname(path))
        files.gfile().copy(os.path.join(source, name), path)
