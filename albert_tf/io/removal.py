# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The only module that deletes files, besides `locks` its lock file: what, and where the rest goes.

- Temporary files: a name that `temporary_name` made, for this process or with the id of the run or
  output that this process has locked (`own_temporaries`).
- Files of ours that a newer version replaces, by their exact names and once that version is
  complete (`remove_files`).
- Nothing else. A damaged file gets another name (`set_aside`).

A link is deleted itself, never what it leads to.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator

from albert_tf.io import storage
from albert_tf.io.json_values import digest

_TEMPORARY = re.compile(r"\.tmp-([0-9a-f]{16}-)?[0-9a-f]{8}$")
#: The id of the run or output whose files this thread writes; "": none.
_owner = contextvars.ContextVar("owner", default="")


def owner_id(*values: object) -> str:
    """Returns the id of a run or output, from JSON values that no other one shares."""
    return digest(values)[:16]


@contextlib.contextmanager
def own_temporaries(owner: str, *folders: str) -> Iterator[None]:
    """Gives the temporary names of this thread an id, and deletes those with it in some folders.

    This process has locked what the `owner_id` stands for, so these are of killed processes.
    """
    for folder in folders:
        for name in storage.listdir(folder):
            if f".tmp-{owner}-" in name and _TEMPORARY.search(name):
                _delete(os.path.join(folder, name))
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def temporary_name(path: str) -> str:
    """Returns a new name beside `path` for a file or folder that is not complete yet."""
    owner = f"{_owner.get()}-" if _owner.get() else ""
    # The random part: nobody can have put a link there.
    return f"{path}.tmp-{owner}{uuid.uuid4().hex[:8]}"


def remove_temporary(path: str) -> None:
    """Deletes a file or folder that this process has made under a `temporary_name`, if it exists.

    Raises:
      ValueError: `path` has another name.
    """
    if not _TEMPORARY.search(path):
        raise ValueError(f"{path} is not a temporary name.")
    _delete(path)


def remove_files(folder: str, names: Iterable[str]) -> None:
    """Deletes files that this program wrote, and that a complete newer version replaces.

    Files that are missing, and folders, are left out.
    """
    for name in names:
        path = os.path.join(folder, name)
        if not storage.isdir(path):
            _delete(path)


def set_aside(path: str, mark: str = "damaged") -> str:
    """Renames a file or folder to `<path>.<mark>`, with a number if that exists; returns the name.

    A folder on a remote file system is only a prefix of names: its files are renamed one by one.
    """
    new, number = f"{path}.{mark}", 1
    while storage.exists(new):
        number += 1
        new = f"{path}.{mark}-{number}"
    move(path, new)
    return new


def move(source: str, target: str) -> None:
    """Renames a file, or a folder to a name where nothing is."""
    if storage.is_local(source) or not storage.isdir(source):
        storage.rename(source, target)
        return
    walk = storage.walk(source)
    for path in [os.path.join(folder, name) for folder, _, names in walk for name in names]:
        new = os.path.join(target, os.path.relpath(path, source))
        storage.makedirs(os.path.dirname(new))
        storage.rename(path, new)


def _delete(path: str) -> None:
    def once(path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def once_remote(path) -> None:
        if storage.gfile().isdir(path):
            storage.gfile().rmtree(path)
        elif storage.gfile().exists(path):
            storage.gfile().remove(path)

    storage.retried(once if storage.is_local(path) else once_remote, path)
