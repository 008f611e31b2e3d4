# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on outputs: only one process at a time writes there.

On local file systems, and on network mounts that support it, a lock is `flock` on a file: the
kernel releases it when the process ends, however it ends. Elsewhere (gs://, ram://, mounts without
locks) it is a lease: a file that its holder keeps rewriting. A lease that has not changed for
EXPIRY_SECONDS is free.

A lease has limits, as tf.io.gfile cannot create a file only if it is absent. Of two processes that
start at the same moment, one overwrites the other's lease, which the other finds SETTLE_SECONDS
later. If the first took longer than that between looking and writing, both work until the next
renewal, which ends the other one. A holder that cannot renew for EXPIRY_SECONDS may lose the lease,
and ends when it finds out: because its machine hangs, or because one call keeps Python's global
interpreter lock (SentencePiece's trainer does). On mounts that keep locks to the machine (gcsfuse,
NFS with local_lock), `flock` excludes only processes of the same machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json, parse_json

LOCK_FILE = ".lock"
#: Seconds between two renewals of a lease.
RENEWAL_SECONDS = 20.0
#: A lease that has not changed for this long belongs to a process that was killed.
EXPIRY_SECONDS = 180.0
#: Seconds after which a process checks whether the lease that it wrote was overwritten.
SETTLE_SECONDS = 1.0
#: How long to wait for the holder of a lock to write its name into the file.
_NAME_SECONDS = 0.5
#: How long a file may be missing on some file systems while another one is renamed to it.
_REWRITE_SECONDS = 0.1
#: Errors of `flock` if another process has the lock; others mean that it is not supported.
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


@dataclasses.dataclass(frozen=True)
class _Holder:
    """The holder of a lock, as written to its file."""

    doing: str
    host: str
    pid: int
    since: str
    token: str  # Random; identifies a lease.
    renewals: int = 0

    @staticmethod
    def this_process(doing: str) -> _Holder:
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        return _Holder(doing, socket.gethostname(), os.getpid(), since, uuid.uuid4().hex)

    def to_bytes(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()


def is_lock_file(path: str) -> bool:
    """Returns whether a file is a lock, by its name."""
    name = os.path.basename(path)
    return name.startswith(".") and name.endswith(LOCK_FILE)


def lock_folder(folder: str, doing: str) -> contextlib.AbstractContextManager[None]:
    """Locks a folder in a with block; creates it if missing, and removes it again if empty.

    The process that holds a lock may enter it again, and holds it until the outermost block ends.

    Args:
      folder: any path that tf.io.gfile can write to.
      doing: what this process does there, such as "training", for the errors of other processes.

    Raises:
      AlbertError: another process holds the lock, or the folder cannot be written to.
    """
    return _holding(os.path.join(folder, LOCK_FILE), folder, doing)


def lock_output(path: str, doing: str) -> contextlib.AbstractContextManager[None]:
    """Locks a file, or a folder that appears only when complete; otherwise like `lock_folder`.

    The lock is beside it, so that other processes can write other files of the same folder.
    """
    folder, name = os.path.split(path.rstrip("/"))
    return _holding(os.path.join(folder, f".{name}{LOCK_FILE}"), path, doing)


@dataclasses.dataclass
class _Held:
    """A lock that this process holds.

    Attributes:
      lock: the lock.
      created: folders that were created for it, the innermost one first.
      blocks: number of with blocks that hold it.
    """

    lock: _FileLock | _Lease
    created: list[str]
    blocks: int = 0


#: The locks of this process, by the path of the lock's file.
_held: dict[str, _Held] = {}
_guard = threading.RLock()


@contextlib.contextmanager
def _holding(path: str, output: str, doing: str) -> Iterator[None]:
    if "://" not in path:
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder), name)
    with _guard:
        if path not in _held:
            _held[path] = _acquire(path, output, _Holder.this_process(doing))
        _held[path].blocks += 1
    try:
        yield
    finally:
        _leave(path)


def _leave(path: str) -> None:
    with _guard:
        held = _held.get(path)
        if held is None:  # In a fork; see `_leave_locks_to_parent`.
            return
        held.blocks -= 1
        if not held.blocks:
            del _held[path]
            held.lock.release()
            _remove_empty(held.created)


def _acquire(path: str, output: str, holder: _Holder) -> _Held:
    """Acquires a lock, or raises AlbertError."""
    if "://" in path:
        return _Held(_Lease(path, output, holder), [])
    folder = os.path.dirname(path)
    try:
        while True:
            created = _create_folder(folder)
            try:
                return _Held(_FileLock(path, output, holder), created)
            except FileNotFoundError:
                if os.path.isdir(folder):
                    raise
                # The process that created the folder has just removed it.
    except _NoLocksError:
        return _Held(_Lease(path, output, holder), created)
    except AlbertError:
        _remove_empty(created)
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise AlbertError(
            f"{output} cannot be written ({error.strerror}: {error.filename}); give a path "
            "where this user may write."
        ) from error


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


class _NoLocksError(Exception):
    """The file system does not support `flock`."""


class _FileLock:
    """`flock` on a file that names its holder."""

    def __init__(self, path: str, output: str, holder: _Holder) -> None:
        self._path = path
        self._file = self._open(output)
        # The name is only for errors: a full disk does not matter.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.write(self._file, holder.to_bytes())

    def _open(self, output: str) -> int:
        while True:
            # Not inherited by programs that this one starts, or they would keep the lock.
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its former holder may have deleted the file after it was opened here.
                if os.path.samestat(os.fstat(file), os.stat(self._path)):
                    return file
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in _BUSY and not os.fstat(file).st_size:
                    os.unlink(self._path)  # Created here; it would look like a lease.
                os.close(file)
                if error.errno in _BUSY:
                    raise _in_use(output, self._read_holder()) from None
                raise _NoLocksError from error
            os.close(file)

    def _read_holder(self) -> bytes:
        end = time.monotonic() + _NAME_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), open(self._path, "rb") as f:
                content = f.read()
                if content:
                    return content
            time.sleep(0.02)
        return b""

    def release(self) -> None:
        """Deletes the file while it is locked, so that whoever has opened it notices."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._file)

    def leave_to_parent(self) -> None:
        """Gives up the lock in a fork, whose parent keeps it."""
        os.close(self._file)


class _Lease:
    """A file that a thread rewrites as long as the process lives."""

    def __init__(self, path: str, output: str, holder: _Holder) -> None:
        import tensorflow as tf

        self._path, self._output, self._holder = path, output, holder
        self._gfile = tf.io.gfile
        self._not_found, self._error = tf.errors.NotFoundError, tf.errors.OpError
        try:
            self._wait_for_other_lease()
            self._gfile.makedirs(os.path.dirname(path))
            self._write()
            time.sleep(SETTLE_SECONDS)
            content = self._read()
        except self._error as error:
            raise AlbertError(f"{output} cannot be written ({error.message}).") from error
        if not self._is_own(content):
            raise _in_use(output, content)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def _wait_for_other_lease(self) -> None:
        """Returns once there is no other lease, or it has expired.

        Watches whether the file changes; times in it would mean little, as clocks differ.

        Raises:
          AlbertError: another process renews its lease.
        """
        first = self._read()
        if first is None:
            return
        print(
            f"{_describe(self._output, first)} Checking for up to {EXPIRY_SECONDS:.0f} s whether "
            "it is still alive.",
            file=sys.stderr,
            flush=True,
        )
        end = time.monotonic() + EXPIRY_SECONDS
        while time.monotonic() < end:
            time.sleep(RENEWAL_SECONDS / 10)
            content = self._read()
            if content is None:
                return
            if content != first:
                raise _in_use(self._output, content)

    def _read(self) -> bytes | None:
        for wait in (_REWRITE_SECONDS, 0.0):
            try:
                with self._gfile.GFile(self._path, "rb") as f:
                    return f.read()
            except self._not_found:
                time.sleep(wait)
        return None

    def _write(self) -> None:
        # Not in place: others would read parts of it, and ram:// appends to existing files. If this
        # process is killed here, `files.remove_temporary` recognises the name.
        temporary = f"{self._path}.tmp-{self._holder.token[:8]}"
        with self._gfile.GFile(temporary, "wb") as f:
            f.write(self._holder.to_bytes())
        self._gfile.rename(temporary, self._path, overwrite=True)

    def _is_own(self, content: bytes | None) -> bool:
        return self._holder.token.encode() in (content or b"")

    def _renew(self) -> None:
        while not self._over.wait(RENEWAL_SECONDS):
            with contextlib.suppress(self._error):  # A network may fail for a while.
                content = self._read()
                if content and not self._is_own(content):
                    _end(f"{_describe(self._output, content)} This process has lost the lease.")
                self._holder = dataclasses.replace(self._holder, renewals=self._holder.renewals + 1)
                self._write()

    def release(self) -> None:
        """Deletes the file, unless another process has taken over the lease."""
        self._over.set()
        self._thread.join()
        with contextlib.suppress(self._error):
            if self._is_own(self._read()):
                self._gfile.remove(self._path)

    def leave_to_parent(self) -> None:
        """Does nothing: a fork does not inherit the thread."""


def _end(text: str) -> None:
    """Ends the process at once, before it writes among the files of another process."""
    os.write(2, f"\nerror: {text}\n".encode())
    os._exit(1)


def _in_use(output: str, content: bytes | None) -> AlbertError:
    return AlbertError(
        f"{_describe(output, content)[:-1]}; wait until it ends, stop it, or give another path."
    )


def _describe(output: str, content: bytes | None) -> str:
    """Returns a sentence on who holds an output, from the content of the lock's file."""
    where = f"the lock of {output}"
    try:
        text = (content or b"").decode("utf-8", "replace")
        holder = from_json(_Holder, parse_json(text, where), where)
    except AlbertError:
        return f"{output} is in use by another process."
    return (
        f"{output} is in use: process {holder.pid} on {holder.host} has been {holder.doing} there "
        f"since {holder.since}."
    )


def _leave_locks_to_parent() -> None:
    """Runs in every fork of this process, which holds none of its locks."""
    global _guard
    _guard = threading.RLock()
    for held in _held.values():
        held.lock.leave_to_parent()
    _held.clear()


os.register_at_fork(after_in_child=_leave_locks_to_parent)
