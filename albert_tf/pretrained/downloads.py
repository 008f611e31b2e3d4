# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Downloads a file into the cache folder, and continues a download that was interrupted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from typing import BinaryIO

from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files
from albert_tf.io.progress import Progress

#: Names the folder for downloaded archives.
CACHE_VARIABLE = "ALBERT_TF_CACHE"
_DEFAULT_CACHE = "~/.cache/albert_tf"
#: Failed attempts in a row, without a byte received, after which a download ends with an error.
_ATTEMPTS = 3
#: Seconds before another attempt.
_PAUSE = 2.0
#: Seconds without an answer after which an attempt has failed.
_TIMEOUT = 30.0
_BLOCK = 1 << 20
_RANGE_NOT_SATISFIABLE = 416
#: Errors of a full disk, for `files.space_for`.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NETWORK_ERRORS = (OSError, http.client.HTTPException)


def cache_folder() -> str:
    """Returns the folder for downloaded archives: $ALBERT_TF_CACHE, or ~/.cache/albert_tf."""
    return os.path.expanduser(os.environ.get(CACHE_VARIABLE) or _DEFAULT_CACHE)


def download(url: str, path: str) -> str:
    """Downloads a file unless it is there, prints its size and SHA-256, and returns `path`.

    The file gets its name when it is complete. Before that it is called PATH.part, where the next
    call continues if the server's file is still the same. Several processes may call this at once:
    one downloads, the others wait.

    Args:
      url: http:// or https://.
      path: where the file is kept, on the local file system.

    Raises:
      AlbertError: the server cannot be reached or has no such file.
      StoppedError: there is no space left.
    """
    if os.path.exists(path):
        return path
    files.check_output_folder(os.path.dirname(path))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.part"
    with files.space_for(path), open(part, "ab") as f:
        with contextlib.suppress(OSError):  # Some mounts have no locks.
            fcntl.flock(f, fcntl.LOCK_EX)
        if os.path.exists(path):  # Downloaded by another process, whose file this now is.
            return path
        _receive(url, f, path)
        f.flush()
        os.fsync(f.fileno())
        os.rename(part, path)
    _forget_version(part)
    print(
        f"Downloaded {url}: {os.path.getsize(path):,} bytes, SHA-256 {files.sha256(path)}. It is "
        f"kept as {path}.",
        file=sys.stderr,
    )
    return path


def _receive(url: str, f: BinaryIO, path: str) -> None:
    """Receives the rest of a file, in several attempts."""
    failed = 0
    while True:
        received = f.tell()
        try:
            _attempt(url, f)
            return
        except _NETWORK_ERRORS as error:
            f.flush()
            if getattr(error, "errno", None) in _FULL:
                raise
            failed = 1 if f.tell() > received else failed + 1
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or failed >= _ATTEMPTS:
                raise _failure(url, path, f.tell(), error) from error
            time.sleep(_PAUSE)


def _attempt(url: str, f: BinaryIO) -> None:
    """Receives the rest of a file; raises one of _NETWORK_ERRORS if the connection fails."""
    version = _read_version(f.name)
    if not version:
        f.truncate(0)
    start = f.seek(0, os.SEEK_END)
    request = urllib.request.Request(url)
    if start:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", version)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != _RANGE_NOT_SATISFIABLE:
            raise
        if error.headers.get("Content-Range") == f"bytes */{start}":
            return  # Killed between the last byte and the renaming.
        _forget_version(f.name)
        raise ConnectionError("the file has changed on the server") from error
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0
            f.truncate(0)
            f.seek(0)
        _write_version(f.name, response.headers)
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        name = os.path.basename(f.name)[: -len(".part")]
        with Progress(f"download {name}", total, "B", start) as progress:
            while block := response.read(_BLOCK):
                f.write(block)
                progress.update(len(block))
    if total is not None and f.tell() != total:
        raise ConnectionError(f"the connection ended after {f.tell():,} of {total:,} bytes")


def _version_file(part: str) -> str:
    """Returns where the server's version of an unfinished file is noted."""
    return f"{part}.version"


def _read_version(part: str) -> str:
    with contextlib.suppress(OSError), open(_version_file(part), encoding="latin-1") as f:
        return f.read()
    return ""


def _write_version(part: str, headers: http.client.HTTPMessage) -> None:
    """Notes what tells versions of a file apart; "" if the server does not say."""
    version = headers.get("ETag", "")
    if not version or version.startswith("W/"):  # A weak one may belong to other bytes.
        version = headers.get("Last-Modified", "")
    with open(_version_file(part), "w", encoding="latin-1") as f:
        f.write(version)


def _forget_version(part: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_version_file(part))


def _failure(url: str, path: str, received: int, error: Exception) -> AlbertError:
    if isinstance(error, urllib.error.HTTPError) and error.code < 500:
        return AlbertError(f"{url} cannot be downloaded: the server answers {first_line(error)}.")
    reason = first_line(getattr(error, "reason", None) or error)
    rest = f" {received:,} bytes are here already, and the same command continues." * bool(received)
    return AlbertError(
        f"{url} cannot be downloaded ({reason}); check the network, or download the file elsewhere "
        f"and copy it to {path}.{rest}"
    )
