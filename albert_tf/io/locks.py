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
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator

from albert_tf.errors import AlbertError
from albert_tf.io import storage
from albert_tf.io.json_values import from_json, parse_json

LOCK_FILE = ".lock"
#: How long to wait for the holder of a lock to write its name into the file.
_NAME_SECONDS = 0.5
#: Errors of `flock` if another process has the lock; others mean that it is not supported.
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


@dataclasses.dataclass(frozen=True)
class _Holder:
    """The holder of a lock, as written to its file."""

    doing: str
    host: str
    pid: int
    since: str


@dataclasses.dataclass
class _Held:
    """A lock that this process holds.

    Attributes:
      file: the open file; None if the file system has no locks.
      thread: the owner.
      created: folders that were created for it, the innermost one first.
      blocks: number of with blocks of this thread that hold it.
    """

    file: int | None
    thread: int
    created: list[str]
    blocks: int = 1


#: The locks of this process, by the path of the lock's file.
_held: dict[str, _Held] = {}
_guard = threading.Lock()


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
    path = os.path.join(os.path.realpath(folder), name)
    thread = threading.get_ident()
    with _guard:
        held = _held.get(path)
        if held and held.thread != thread:
            raise AlbertError(
                f"{output} is in use by another thread of this process; give another path."
            )
        if held:
            held.blocks += 1
        else:
            _held[path] = _acquire(path, output, doing)
    try:
        yield
    finally:
        with _guard:
            held = _held.get(path)
            if held is not None:  # None: in a fork, see `_leave_locks_to_parent`.
                held.blocks -= 1
                if not held.blocks:
                    del _held[path]
                    _release(path, held)


def _acquire(path: str, output: str, doing: str) -> _Held:
    """Acquires a lock, or raises AlbertError."""
    folder, created = os.path.dirname(path), []
    try:
        while True:
            created += _create_folder(folder)
            try:
                file = storage.retried(_lock, path, output, doing)
                return _Held(file, threading.get_ident(), created)
            except FileNotFoundError:
                if os.path.isdir(folder):
                    raise
                # The process that created the folder has just removed it.
    except AlbertError:
        _remove_empty(created)
        raise
    except OSError as error:
        _remove_empty(created)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise AlbertError(
            f"{output} cannot be written ({error.strerror}: {error.filename}); give a path "
            "where this user may write."
        ) from error


def _lock(path: str, output: str, doing: str) -> int | None:
    """Opens and locks a file; returns None if its file system has no locks.

    Raises:
      AlbertError: another process holds it, or it is a link or a file of another program.
      FileNotFoundError: the folder is gone.
    """
    while True:
        try:
            # Not through a link, which could lead to any file. Not inherited by programs that this
            # one starts, or they would keep the lock.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(path, flags, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise _not_a_lock(path) from None
            raise
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its former holder may have deleted the file after it was opened here.
            if os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False)):
                _sign(file, path, doing)
                return file
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in _BUSY:
                text = _read_holder(file)
                os.close(file)
                raise _in_use(output, text) from None
            if not os.fstat(file).st_size:
                os.unlink(path)  # Created here.
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _sign(file: int, path: str, doing: str) -> None:
    """Writes the holder's name into a locked file, for the errors of other processes.

    Raises:
      AlbertError: the file is not a lock.
    """
    mark = b'{"doing": '
    beginning = os.pread(file, len(mark), 0) if stat.S_ISREG(os.fstat(file).st_mode) else b"?"
    if not mark.startswith(beginning):  # The first write of a killed process may be cut off.
        raise _not_a_lock(path)
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    holder = _Holder(doing, socket.gethostname(), os.getpid(), since)
    with contextlib.suppress(OSError):  # A full disk does not matter.
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(dataclasses.asdict(holder)).encode(), 0)


def _not_a_lock(path: str) -> AlbertError:
    return AlbertError(
        f"{path} is not a lock that this program has written; move it away, or give another path."
    )


def _read_holder(file: int) -> bytes:
    end = time.monotonic() + _NAME_SECONDS
    while time.monotonic() < end:
        content = os.pread(file, 1 << 16, 0)
        if content:
            return content
        time.sleep(0.02)
    return b""


def _in_use(output: str, content: bytes) -> AlbertError:
    """Returns an error that says who holds an output, from the content of the lock's file."""
    where, who = f"the lock of {output}", "in use by another process"
    with contextlib.suppress(AlbertError):
        holder = from_json(_Holder, parse_json(content.decode("utf-8", "replace"), where), where)
        who = (
            f"in use: process {holder.pid} on {holder.host} has been {holder.doing} there since "
            f"{holder.since}"
        )
    return AlbertError(f"{output} is {who}; wait until it ends, stop it, or give another path.")


def _release(path: str, held: _Held) -> None:
    """Deletes the file while it is locked, so that whoever has opened it notices."""
    if held.file is not None:
        for release in (lambda: os.unlink(path), lambda: os.close(held.file)):
            with contextlib.suppress(OSError):  # Closed or not, the work is done.
                release()
    _remove_empty(held.created)


def _create_folder(folder: str) -> list[str]:
    """Creates a local folder; returns those that were missing, the innermost one first."""
    missing = []
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    if missing:
        os.makedirs(missing[0], exist_ok=True)
    return missing


def _remove_empty(folders: list[str]) -> None:
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)


def _leave_locks_to_parent() -> None:
    """Runs in every fork of this process, which holds none of its locks."""
    global _guard
    _guard = threading.Lock()
    for held in _held.values():
        if held.file is not None:
            os.close(held.file)
    _held.clear()


os.register_at_fork(after_in_child=_leave_locks_to_parent)
