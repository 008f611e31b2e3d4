# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on outputs: only one thread of one process writes there at a time.

A lock is `flock` on a local file; the kernel releases it when the process ends, however it ends.
On remote file systems (gs://, …) and on mounts without `flock` nothing is locked. On mounts that
keep locks to the machine (gcsfuse, NFS with local_lock), only processes of the same machine are
excluded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import socket
import stat
import threading
import time
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
#: How long to wait for the holder of a lock to write that text.
_NAME_SECONDS = 0.5


@dataclasses.dataclass(eq=False)
class _Lock:
    thread: int
    file: int = -1


#: The locks of this process, by the path of the lock's file.
_held: dict[str, _Lock] = {}


def is_lock_file(path: str) -> bool:
    """Returns whether a file is a lock, by its name."""
    name = os.path.basename(path)
    return name.startswith(".") and name.endswith(LOCK_FILE)


def lock_folder(folder: str, doing: str) -> contextlib.AbstractContextManager[None]:
    """Locks a folder in a with block; creates it if missing, and removes it again if empty.

    The thread that holds a lock may enter it again, and holds it until the outermost block ends.

    Args:
      folder: any path that tf.io.gfile can write to.
      doing: what this process does there, such as "training", for the errors of other processes.

    Raises:
      AlbertError: another process or thread holds the lock, or the folder cannot be written to.
    """
    return _holding(os.path.join(folder, LOCK_FILE), folder, doing)


def lock_output(path: str, doing: str) -> contextlib.AbstractContextManager[None]:
    """Locks a file, or a folder that appears only when complete; otherwise like `lock_folder`.

    The lock is beside it, so that other processes can write other files of the same folder.
    """
    folder, name = os.path.split(path.rstrip("/"))
    return _holding(os.path.join(folder, f".{name}{LOCK_FILE}"), path, doing)


@contextlib.contextmanager
def _holding(path: str, output: str, doing: str) -> Iterator[None]:
    if not storage.is_local(path):
        yield
        return
    folder, name = os.path.split(path)
    folder = os.path.realpath(folder)
    path = os.path.join(folder, name)
    lock = _Lock(threading.get_ident())
    held = _held.setdefault(path, lock)  # In one step, whatever other threads do.
    if held.thread != lock.thread:
        raise AlbertError(
            f"{output} is in use by another thread of this process; give another path."
        )
    if held is not lock:
        yield
        return
    created: list[str] = []
    try:
        try:
            lock.file = storage.retried(_acquire, path, output, doing, created)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise AlbertError(
                f"{output} cannot be written ({error.strerror}: {error.filename}); give a path "
                "where this user may write."
            ) from error
        yield
    finally:
        if _held.get(path) is lock:  # Not in a fork, see `_leave_locks_to_parent`.
            with contextlib.suppress(OSError):
                if lock.file >= 0:
                    os.unlink(path)  # While it is locked, so that who has opened it notices.
                    os.close(lock.file)
            del _held[path]
            with contextlib.suppress(OSError):
                for folder in created:
                    os.rmdir(folder)


def _acquire(path: str, output: str, doing: str, created: list[str]) -> int:
    """Opens, locks and signs a file; notes the folders it has created, the innermost one first.

    Raises:
      AlbertError: another process holds it, or it is a link or a file of another program.
    """
    while True:
        folder = os.path.dirname(path)
        while not os.path.exists(folder):
            created.append(folder)
            folder = os.path.dirname(folder)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            file = os.open(path, _FLAGS, 0o666)
        except FileNotFoundError:  # The process that created the folder has just removed it.
            if os.path.isdir(os.path.dirname(path)):
                raise
            continue
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise _not_a_lock(path) from None
            raise
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                raise _in_use(file, output) from None
        try:
            # Its former holder may have deleted the file after it was opened here.
            if os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False)):
                _sign(file, path, doing)
                return file
        except FileNotFoundError:
            pass
        except AlbertError:
            os.close(file)
            raise
        os.close(file)


def _sign(file: int, path: str, doing: str) -> None:
    """Writes who holds a lock into its file; raises AlbertError if it is not a lock."""
    is_file = stat.S_ISREG(os.fstat(file).st_mode)
    if not is_file or not _MARK.startswith(os.pread(file, len(_MARK), 0)):
        raise _not_a_lock(path)
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    text = f"process {os.getpid()} on {socket.gethostname()} has been {doing} there since {since}"
    with contextlib.suppress(OSError):  # A full disk does not matter.
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode(), 0)


def _not_a_lock(path: str) -> AlbertError:
    return AlbertError(
        f"{path} is not a lock that this program has written; move it away, or give another path."
    )


def _in_use(file: int, output: str) -> AlbertError:
    """Closes a file that another process has locked; returns an error with its text."""
    end = time.monotonic() + _NAME_SECONDS
    while not (text := os.pread(file, 300, 0)) and time.monotonic() < end:
        time.sleep(0.02)
    os.close(file)
    who = " by another process"
    if text.startswith(_MARK):
        who = f": {''.join(filter(str.isprintable, text.decode('utf-8', 'replace')))}"
    return AlbertError(
        f"{output} is in use{who}; wait until it ends, stop it, or give another path."
    )


def _leave_locks_to_parent() -> None:
    """Runs in every fork of this process, which holds none of its locks."""
    for lock in _held.values():
        if lock.file >= 0:
            os.close(lock.file)
    _held.clear()


os.register_at_fork(after_in_child=_leave_locks_to_parent)
