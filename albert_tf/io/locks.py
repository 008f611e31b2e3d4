# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on outputs: one process writes there at a time, and a second one is refused.

On local file systems, and on network mounts that pass locks on, a lock is `flock` on a file: the
kernel releases it when the process ends, however it ends. Elsewhere (gs://, ram://, mounts without
locks) it is a lease: a file that its holder keeps rewriting. A lease that has not changed for
EXPIRY_SECONDS is free.

What a lease cannot exclude: tf.io.gfile has no way to create a file only if it is absent. Of two
processes that start at the same moment, the one whose lease is overwritten finds out SETTLE_SECONDS
later. If the other one needed longer than that between looking and writing, both work until the
first one's next renewal, which ends it. A holder that cannot renew for EXPIRY_SECONDS may lose the
lease, and ends when it finds out: because its machine hangs, or because one call keeps Python's
global interpreter lock (SentencePiece's trainer does). Mounts that keep locks to the machine
(gcsfuse, NFS with local_lock) exclude processes of the same machine only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
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
#: A lease that has not changed for so many seconds is that of a process that was killed.
EXPIRY_SECONDS = 180.0
#: Seconds after which a process that has written a lease checks that it is still its own.
SETTLE_SECONDS = 1.0
#: A process has the lock of a file a moment before its name is in there.
_NAME_SECONDS = 0.5
#: Some file systems have no file of a name for a moment while another one is renamed to it.
_REWRITE_SECONDS = 0.1
#: What `flock` says if another process has the lock; other errors mean that there are no locks.
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


@dataclasses.dataclass(frozen=True)
class _Holder:
    """Who holds a lock: the content of its file."""

    doing: str
    host: str
    pid: int
    since: str
    token: str  # Random: a lease is recognised by it.
    renewals: int = 0

    @staticmethod
    def this_process(doing: str) -> _Holder:
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        return _Holder(doing, socket.gethostname(), os.getpid(), since, uuid.uuid4().hex)

    def to_bytes(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()


def is_lock_file(path: str) -> bool:
    """Whether a file is a lock rather than anybody's result, by its name."""
    name = os.path.basename(path)
    return name.startswith(".") and name.endswith(LOCK_FILE)


def lock_folder(folder: str, doing: str) -> contextlib.AbstractContextManager[None]:
    """Holds a folder while it is entered; makes it if needed, and removes it again if it is empty.

    A process that holds a lock may enter it again, and holds it until the outermost block ends.

    Args:
      folder: any path that tf.io.gfile can write to.
      doing: what this process does there, for the errors of others, such as "training".

    Raises:
      AlbertError: another process holds it, or nothing can be written there.
    """
    return _holding(os.path.join(folder, LOCK_FILE), folder, doing)


def lock_output(path: str, doing: str) -> contextlib.AbstractContextManager[None]:
    """Holds a file that is to be written, or a folder that appears when complete: `lock_folder`.

    The lock lies beside it, so that other files of the same folder can be written meanwhile.
    """
    folder, name = os.path.split(path.rstrip("/"))
    return _holding(os.path.join(folder, f".{name}{LOCK_FILE}"), path, doing)


@dataclasses.dataclass
class _Held:
    """A lock of this process, and how many blocks are within it."""

    lock: _FileLock | _Lease
    made: list[str]
    blocks: int = 0


#: What this process holds, by the path of the lock's file.
_held: dict[str, _Held] = {}
_guard = threading.RLock()


@contextlib.contextmanager
def _holding(path: str, output: str, doing: str) -> Iterator[None]:
    _leave_locks_to_parents()
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
        with _guard:
            held = _held.get(path)  # None in a fork that leaves the block: see `_forget_all`.
            if held:
                held.blocks -= 1
                if not held.blocks:
                    del _held[path]
                    held.lock.release()
                    _remove_empty(held.made)


def _acquire(path: str, output: str, holder: _Holder) -> _Held:
    """The lock, or AlbertError."""
    if "://" in path:
        return _Held(_Lease(path, output, holder), [])
    try:
        while True:
            made = _make_folder(os.path.dirname(path))
            try:
                return _Held(_FileLock(path, output, holder), made)
            except FileNotFoundError:
                if os.path.isdir(os.path.dirname(path)):
                    raise
                # The process that made the folder has just removed it.
    except _NoLocksError:
        return _Held(_Lease(path, output, holder), made)
    except AlbertError:
        _remove_empty(made)
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise AlbertError(
            f"{output} cannot be written to ({error.strerror}: {error.filename}); give a path "
            "where this user may write."
        ) from error


def _make_folder(folder: str) -> list[str]:
    """Makes a local folder; gives those that were missing, the innermost one first."""
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
    """The file system has no `flock`."""


class _FileLock:
    """`flock` on a file, with the name of its holder in it."""

    def __init__(self, path: str, output: str, holder: _Holder) -> None:
        self._path = path
        self._file = self._open(output)
        # The name is for errors alone; a full disk is no reason not to hold the lock.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.write(self._file, holder.to_bytes())

    def _open(self, output: str) -> int:
        while True:
            # Programs that this one starts do not inherit it, or they would hold it on.
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its former holder may have deleted it after it was opened.
                if os.path.samestat(os.fstat(file), os.stat(self._path)):
                    return file
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in _BUSY and not os.fstat(file).st_size:
                    os.unlink(self._path)  # Made here, and it would look like a lease.
                os.close(file)
                if error.errno in _BUSY:
                    raise _refusal(output, self._holder()) from None
                raise _NoLocksError from error
            os.close(file)

    def _holder(self) -> bytes | None:
        end = time.monotonic() + _NAME_SECONDS
        content = b""
        while not content and time.monotonic() < end:
            with contextlib.suppress(OSError), open(self._path, "rb") as f:
                content = f.read()
            if not content:
                time.sleep(0.02)
        return content

    def release(self) -> None:
        """Deletes the file while it is locked: who has opened it sees that it is gone."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._file)

    def forget(self) -> None:
        """Leaves the lock to the parent of this process, which is a fork."""
        os.close(self._file)


class _Lease:
    """A file that a thread rewrites as long as the process lives."""

    def __init__(self, path: str, output: str, holder: _Holder) -> None:
        import tensorflow as tf

        self._path, self._output, self._holder = path, output, holder
        self._gfile, self._not_found, self._error = (
            tf.io.gfile,
            tf.errors.NotFoundError,
            tf.errors.OpError,
        )
        try:
            self._wait_for_another()
            self._gfile.makedirs(os.path.dirname(path))
            self._write()
            time.sleep(SETTLE_SECONDS)
            content = self._read()
        except self._error as error:
            raise AlbertError(f"{output} cannot be written to ({error.message}).") from error
        if not self._is_own(content):
            raise _refusal(output, content)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def _wait_for_another(self) -> None:
        """Returns when there is no other lease, or it has expired. Raises AlbertError if it lives.

        Clocks of machines differ; so this looks whether the file changes, not at the times in it.
        """
        found = self._read()
        if found is None:
            return
        print(
            f"{_sentence(self._output, found)} Looking for up to {EXPIRY_SECONDS:.0f} s whether "
            "it is still alive.",
            file=sys.stderr,
            flush=True,
        )
        end = time.monotonic() + EXPIRY_SECONDS
        while time.monotonic() < end:
            time.sleep(RENEWAL_SECONDS / 10)
            now = self._read()
            if now is None:
                return
            if now != found:
                raise _refusal(self._output, now)

    def _read(self) -> bytes | None:
        for wait in (_REWRITE_SECONDS, 0.0):
            try:
                with self._gfile.GFile(self._path, "rb") as f:
                    return f.read()
            except self._not_found:
                time.sleep(wait)
        return None

    def _write(self) -> None:
        # Not in place: others would read a part of it, and ram:// appends to a file that is there.
        # Named as `files.remove_temporary` expects, in case this process is killed here.
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
                    _end(f"{_sentence(self._output, content)} This process has lost the lease.")
                self._holder = dataclasses.replace(self._holder, renewals=self._holder.renewals + 1)
                self._write()

    def release(self) -> None:
        """Deletes the file, if no other process has taken it over."""
        self._over.set()
        self._thread.join()
        with contextlib.suppress(self._error):
            if self._is_own(self._read()):
                self._gfile.remove(self._path)

    def forget(self) -> None:
        """Leaves it to the parent of this process, which is a fork: threads are not inherited."""


def _end(text: str) -> None:
    """Ends the process at once: whatever it still wrote would be among another one's files."""
    os.write(2, f"\nerror: {text}\n".encode())
    os._exit(1)


def _refusal(output: str, content: bytes | None) -> AlbertError:
    return AlbertError(
        f"{_sentence(output, content)[:-1]}; wait for its end, stop it, or give another path."
    )


def _sentence(output: str, content: bytes | None) -> str:
    """Who holds an output, by the content of the lock's file."""
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


@functools.lru_cache(maxsize=1)
def _leave_locks_to_parents() -> None:
    """From now on, forks of this process hold none of its locks."""
    os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    global _guard
    _guard = threading.RLock()
    for held in _held.values():
        held.lock.forget()
    _held.clear()
