# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on folders: only one thread of one process writes there at a time.

A lock is `flock` on a local file; the kernel releases it when the process ends, however it ends.
On remote file systems (gs://, …) and on mounts without `flock` nothing is locked. On mounts that
keep locks to the machine (gcsfuse, NFS with local_lock), only processes of the same machine are
excluded.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import threading
from collections.abc import Iterator

from albert_tf.errors import AlbertError
from albert_tf.io import storage

LOCK_FILE = ".lock"
#: Errors of `flock` if another process has the lock; others mean that it is not supported.
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
#: Not through a link, which could lead to any file. Not inherited by programs that this one starts,
#: or they would keep the lock.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Begins the text in a lock's file, which names its holder.
_MARK = b"process "

#: The open files of this process's locks, by the thread that holds each and the path.
_files = {}


@contextlib.contextmanager
def lock_folder(folder: str) -> Iterator[None]:
    """Locks a folder in a with block; creates it if missing, and removes it again if empty.

    The thread that holds a lock may enter it again, and holds it until the outermost block ends.

    Raises:
      AlbertError: another process or thread holds the lock, or the folder cannot be written to.
    """
    path = os.path.join(os.path.realpath(folder), LOCK_FILE)
    lock = threading.get_ident(), path
    if not storage.is_local(folder) or lock in _files:
        yield
        return
    created = [os.path.dirname(path)]  # The innermost one first.
    while not os.path.exists(created[-1]):
        created.append(os.path.dirname(created[-1]))
    try:
        try:
            _files[lock] = storage.retried(_acquire, path, folder)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise AlbertError(
                f"{folder} cannot be written ({error.strerror}: {error.filename}); give a path "
                "where this user may write."
            ) from error
        yield
    finally:
        if lock in _files:  # Not in a fork, see `_leave_locks_to_parent`.
            with contextlib.suppress(OSError):
                os.unlink(path)  # While it is locked, so that who has opened it notices.
            os.close(_files.pop(lock))
            with contextlib.suppress(OSError):
                for empty in created[:-1]:
                    os.rmdir(empty)


def _acquire(path: str, folder: str) -> int:
    """Opens, locks and signs a file."""
    with contextlib.ExitStack() as unless_held:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            file = os.open(path, _FLAGS, 0o666)
        except FileNotFoundError:  # The process that created the folder has just removed it.
            if os.path.isdir(os.path.dirname(path)):
                raise
            return _acquire(path, folder)
        unless_held.callback(os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                who = os.pread(file, 300, 0).decode("utf-8", "replace") or "a process"
                raise AlbertError(
                    f"{folder} is in use by {who}; wait until it ends, stop it, or give another "
                    "path."
                ) from None
        if not _is_at(file, path):  # Its former holder has deleted it after it was opened here.
            return _acquire(path, folder)
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        if not is_file or not _MARK.startswith(os.pread(file, len(_MARK), 0)):
            raise AlbertError(
                f"{path} is not a lock that this program has written; move it away, or give "
                "another path."
            )
        with contextlib.suppress(OSError):  # A full disk does not matter.
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        unless_held.pop_all()
        return file


def _is_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _leave_locks_to_parent() -> None:
    """Runs in every fork of this process, which holds none of its locks."""
    for file in _files.values():
        os.close(file)
    _files.clear()


os.register_at_fork(after_in_child=_leave_locks_to_parent)
