# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Downloads archives of models, and unpacks archives that may be damaged or malicious."""

from __future__ import annotations

import atexit
import functools
import http.client
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from typing import IO, BinaryIO

from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files, storage
from albert_tf.io.log import log
from albert_tf.io.progress import Progress

#: Attempts without progress, the seconds between them, and those without an answer that end one.
_ATTEMPTS, _PAUSE, _TIMEOUT = 5, 2.0, 30.0
_BLOCK = 1 << 20
#: An archive may hold so many times its size, as weights hardly shrink when they are packed; a
#: small one may hold so many bytes.
_MAX_RATIO, _MAX_SMALL_BYTES = 20, 1 << 30
_MAX_MEMBERS = 1000
#: tarfile reads headers, such as long names, into memory.
_MAX_HEADER_BYTES = 1 << 20


def download(url: str, path: str) -> str:
    """Downloads a file unless it is there, prints its size and SHA-256, and returns `path`.

    The file gets its name when it is complete. If the connection breaks, the rest is asked for.

    Args:
      url: an address that urllib can open.
      path: where the file is kept, on the local file system.

    Raises:
      AlbertError: the server cannot be reached or has no such file, or no file can be written.
      StoppedError: there is no space left.
    """
    if os.path.exists(path):
        return path
    files.check_output_folder(os.path.dirname(path))
    with files.atomic_path(path) as temporary, open(temporary, "wb") as f:
        _receive_all(url, f, path)
        os.fsync(f.fileno())
    size, digest = os.path.getsize(path), files.sha256(path)
    log.warning(f"Downloaded {url}: {size:,} bytes, SHA-256 {digest}. It is kept as {path}.")
    return path


def _receive_all(url: str, f: BinaryIO, path: str) -> None:
    """Asks for a file, and for the rest where the connection breaks, until it is there."""
    version, failures, farthest = "", 0, 0
    while True:
        # A weak tag may belong to other bytes.
        known = version and not version.startswith("W/")
        headers = {"Range": f"bytes={f.tell()}-", "If-Range": version} if known else {}
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                if response.url.partition(":")[0] != url.partition(":")[0]:
                    raise AlbertError(f"{url} leads to {response.url}; do not use it.")
                version = response.headers.get("ETag", "")
                _receive(response, f, os.path.basename(path))
            f.flush()
            return
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise AlbertError(
                    f"{url} cannot be downloaded: the server answers {first_line(error)}."
                ) from error
            failures = 1 if f.tell() > farthest else failures + 1
            farthest = max(farthest, f.tell())
            if failures == _ATTEMPTS:
                reason = first_line(getattr(error, "reason", None) or error)
                raise AlbertError(
                    f"{url} cannot be downloaded ({reason}); check the network and run the same "
                    f"command again, or download the file elsewhere and copy it to {path}."
                ) from error
            time.sleep(_PAUSE)


def _receive(response: http.client.HTTPResponse, f: BinaryIO, name: str) -> None:
    """Writes an answer, which is a whole file or the rest of it."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        f.seek(0)
        f.truncate()
    length = response.headers.get("Content-Length")
    total = f.tell() + int(length) if length else None
    with Progress(f"download {name}", total, initial=f.tell()) as progress:
        while block := response.read(_BLOCK):
            f.write(block)
            progress.update(len(block))
    if total and f.tell() != total:
        raise ConnectionError(f"the connection ended after {f.tell():,} of {total:,} bytes")


def unpack(path: str) -> str:
    """Unpacks an archive into a temporary folder, which is deleted when the process ends.

    A second call for the same file returns the same folder.

    Returns:
      The folder with the files. If the archive holds a single folder, that one.

    Raises:
      AlbertError: the archive is missing, damaged or too large, or has a member that is neither a
        file nor a folder inside the archive.
    """
    files.check_file(path, "archive")
    status = storage.gfile().stat(path)
    return _unpack(path, status.length, status.mtime_nsec)


@functools.cache
def _unpack(path: str, length: int, modified_nanoseconds: int) -> str:
    """Unpacks this version of an archive."""
    del modified_nanoseconds
    temporary = tempfile.TemporaryDirectory(prefix="albert_tf-")
    # Errors that name the files name the archive.
    folder = os.path.join(temporary.name, os.path.basename(path))
    try:
        with files.space_for(f"the files of {path}"), storage.gfile().GFile(path, "rb") as f:
            _extract(path, f, folder, max(_MAX_SMALL_BYTES, _MAX_RATIO * length))
    except BaseException as error:
        temporary.cleanup()
        if isinstance(error, AlbertError) or not isinstance(error, Exception):
            raise
        # The libraries raise errors of many types, and those of the system name the folder.
        reason = getattr(error, "strerror", None) or first_line(error)
        raise AlbertError(f"The archive {path} is damaged ({reason}); get it again.") from error
    atexit.register(temporary.cleanup)
    while len(names := os.listdir(folder)) == 1 and os.path.isdir(f"{folder}/{names[0]}"):
        folder = os.path.join(folder, names[0])
    return folder


def _extract(path: str, f: BinaryIO, folder: str, limit: int) -> None:
    """Writes an archive's files, at most `limit` bytes, to a new folder; makes no links."""
    os.mkdir(folder)
    total = 0
    members = _zip_members(f) if path.endswith(".zip") else _tar_members(f)
    for count, (name, size, is_plain, content) in enumerate(members, start=1):
        target = posixpath.normpath(name)
        if target.startswith(("/", "..")) or "\\" in name or ":" in name:
            raise AlbertError(
                f"The archive {path} has a member outside its folder, {name!r}; do not use it."
            )
        if not is_plain:
            raise AlbertError(
                f"The archive {path} holds {name!r}, which is neither a file nor a folder; do not "
                "use it."
            )
        total += size
        if total > limit or count > _MAX_MEMBERS:
            raise AlbertError(
                f"The archive {path} holds more than {limit / (1 << 30):.3g} GiB or {_MAX_MEMBERS} "
                "files; unpack it yourself if you trust it."
            )
        target = os.path.join(folder, target)
        os.makedirs(os.path.dirname(target) if content else target, exist_ok=True)
        if content:
            with open(target, "wb") as out:
                shutil.copyfileobj(content, out)


#: Name, size, whether it is a file or a folder, and the content of a file.
_Member = tuple[str, int, bool, "IO[bytes] | None"]


def _zip_members(f: BinaryIO) -> Iterator[_Member]:
    with zipfile.ZipFile(f) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 if not made on Unix.
            if not info.filename.startswith("__MACOSX/"):  # macOS adds this folder.
                content = None if info.is_dir() else archive.open(info)
                is_plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
                yield info.filename, info.file_size, is_plain, content


def _tar_members(f: BinaryIO) -> Iterator[_Member]:
    with tarfile.open(fileobj=f, mode="r|*", tarinfo=_TarInfo) as archive:
        for info in archive:
            content = archive.extractfile(info) if info.isreg() else None
            yield info.name, info.size, info.isreg() or info.isdir(), content


class _TarInfo(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, *args: object) -> tarfile.TarInfo:
        """Refuses large headers."""
        info = super().frombuf(*args)
        if not info.isreg() and info.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {info.size} bytes")
        return info
