# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Downloads archives of models, and unpacks archives that may be damaged or malicious."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import http.client
import os
import posixpath
import shutil
import stat
import struct
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from typing import BinaryIO

from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files, removal, storage
from albert_tf.io.log import log
from albert_tf.io.progress import Progress

#: Names the folder for downloaded archives.
CACHE_VARIABLE = "ALBERT_TF_CACHE"
#: Attempts of a download, the seconds between them, and those without an answer that end one.
_ATTEMPTS, _PAUSE, _TIMEOUT = 5, 2.0, 30.0
_BLOCK = 1 << 20
#: The largest release, with its optimizer's slots, is below 3 GB. Weights hardly shrink when they
#: are packed, so a small archive may hold less.
_MAX_BYTES, _MAX_SMALL_BYTES, _MAX_RATIO = 16 << 30, 1 << 30, 20
_MAX_MEMBERS = 1000
_MAX_EXTENSION_BYTES = 1 << 20
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
#: Python's own checks, which older patch releases of Python 3.9 to 3.11 do not have.
_FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
#: Errors of `tarfile` and `zipfile`. RuntimeError: an encrypted .zip, or an unknown compression.
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)
_unpacked: dict[tuple[str, int, int], str] = {}


def cache_folder() -> str:
    """Returns the folder for downloaded archives: $ALBERT_TF_CACHE, or ~/.cache/albert_tf."""
    return os.path.expanduser(os.environ.get(CACHE_VARIABLE) or "~/.cache/albert_tf")


def download(url: str, path: str) -> str:
    """Downloads a file unless it is there, prints its size and SHA-256, and returns `path`.

    The file gets its name when it is complete. Another call continues a download that was
    interrupted, if the server's file is still the same. Of several processes that call this at
    once, one downloads and the others wait.

    Args:
      url: an address that urllib can open.
      path: where the file is kept, on the local file system.

    Raises:
      AlbertError: the server cannot be reached or has no such file.
      StoppedError: there is no space left.
    """
    if os.path.exists(path):
        return path
    files.check_output_folder(os.path.dirname(path))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for left in reversed(range(_ATTEMPTS)):
        try:
            with files.space_for(path):
                _receive(url, path)
            break
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise AlbertError(
                    f"{url} cannot be downloaded: the server answers {first_line(error)}."
                ) from error
            if not left:
                reason = first_line(getattr(error, "reason", None) or error)
                raise AlbertError(
                    f"{url} cannot be downloaded ({reason}); check the network and run the same "
                    "command again, which continues, or download the file elsewhere and copy it "
                    f"to {path}."
                ) from error
            time.sleep(_PAUSE)
    log.warning(
        f"Downloaded {url}: {os.path.getsize(path):,} bytes, SHA-256 {files.sha256(path)}. It is "
        f"kept as {path}."
    )
    return path


def _receive(url: str, path: str) -> None:
    """Receives a file, or the rest of one; raises OSError or HTTPException if that fails."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
        if urllib.parse.urlsplit(response.url).scheme != urllib.parse.urlsplit(url).scheme:
            raise AlbertError(f"{url} leads to {response.url}; do not use it.")
        # What tells versions of a file apart; a weak tag may belong to other bytes.
        version = response.headers.get("ETag", "")
        if not version or version.startswith("W/"):
            version = response.headers.get("Last-Modified", "")
        total = int(response.headers.get("Content-Length", 0))
        part = f"{path}.{hashlib.sha256(version.encode()).hexdigest()[:12]}.part"
        with open(part, "ab") as f:
            with contextlib.suppress(OSError):  # Some mounts have no locks.
                fcntl.flock(f, fcntl.LOCK_EX)
            if os.path.exists(path):  # Another process has just completed it.
                removal.remove_files(os.path.dirname(part), [os.path.basename(part)])
                return
            if not version or f.tell() > total:
                _clear(f)
            if not total or not f.tell():
                _copy(response, f, total)
            elif f.tell() < total:
                response.close()
                headers = {"Range": f"bytes={f.tell()}-", "If-Range": version}
                request = urllib.request.Request(url, headers=headers)
                with urllib.request.urlopen(request, timeout=_TIMEOUT) as rest:
                    if rest.status != http.HTTPStatus.PARTIAL_CONTENT:
                        _clear(f)
                    _copy(rest, f, total)
            f.flush()
            os.fsync(f.fileno())
            os.rename(part, path)


def _clear(f: BinaryIO) -> None:
    f.seek(0)
    f.truncate()


def _copy(response: http.client.HTTPResponse, f: BinaryIO, total: int) -> None:
    """Appends an answer to a file, which then has `total` bytes; 0 if that is unknown."""
    with Progress(f"download {os.path.basename(f.name)}", total or None, "B", f.tell()) as progress:
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
    key = (path, status.length, status.mtime_nsec)
    if key not in _unpacked:
        folder = tempfile.mkdtemp(prefix="albert_tf-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        # Errors that name the files name the archive.
        inner = os.path.join(folder, os.path.basename(path))
        os.mkdir(inner)
        limit = min(_MAX_BYTES, max(_MAX_SMALL_BYTES, _MAX_RATIO * status.length))
        try:
            _extract(path, inner, limit)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        _unpacked[key] = inner
    folder = _unpacked[key]
    while len(names := os.listdir(folder)) == 1 and os.path.isdir(f"{folder}/{names[0]}"):
        folder = os.path.join(folder, names[0])
    return folder


def _extract(path: str, folder: str, limit: int) -> None:
    """Extracts an archive into a folder, at most `limit` bytes."""
    import tensorflow as tf  # Names of models are looked up without it.

    extract = _extract_zip if path.endswith(".zip") else _extract_tar
    try:
        with (
            files.space_for(f"the files of {path}, in {folder}"),
            storage.gfile().GFile(path, "rb") as f,
        ):
            extract(path, f, folder, limit)
    except AlbertError:
        raise
    except (*_DAMAGED, tf.errors.OpError) as error:
        # The whole message of the system's errors names the temporary folder.
        reason = getattr(error, "strerror", None) or first_line(error)
        raise AlbertError(f"The archive {path} is damaged ({reason}); get it again.") from error


class _Header(tarfile.TarInfo):
    """Refuses large headers of long names and of attributes: tarfile reads them into memory."""

    @classmethod
    def frombuf(cls, *args: object) -> tarfile.TarInfo:
        """See tarfile.TarInfo."""
        member = super().frombuf(*args)
        if member.type in _EXTENSIONS and member.size > _MAX_EXTENSION_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


def _extract_tar(path: str, f: BinaryIO, folder: str, limit: int) -> None:
    total = 0
    with tarfile.open(fileobj=f, mode="r|*", tarinfo=_Header) as archive:
        for count, member in enumerate(archive, start=1):
            # A release has no links, devices or sparse files.
            plain = member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
            _check_member(path, member.name, plain)
            total += member.size
            _check_sizes(path, count, total, limit)
            archive.extract(member, folder, set_attrs=False, **_FILTER)


def _extract_zip(path: str, f: BinaryIO, folder: str, limit: int) -> None:
    """Extracts the members of a .zip file, which are never larger than they say."""
    with zipfile.ZipFile(f) as archive:
        members = archive.infolist()
        for member in members:  # All of them before any is written.
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 if not made on Unix.
            _check_member(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        _check_sizes(path, len(members), sum(member.file_size for member in members), limit)
        for member in members:
            if not member.filename.startswith("__MACOSX/"):  # macOS adds this folder.
                archive.extract(member, folder)


def _check_member(path: str, name: str, is_plain: bool) -> None:
    """Refuses links and devices, and names that `data_filter` and `zipfile` accept or change."""
    normal = posixpath.normpath(name)
    if normal.startswith(("/", "..")) or "\\" in name or ":" in name:
        raise AlbertError(
            f"The archive {path} has a member outside its folder, {name!r}; do not use it."
        )
    if not is_plain:
        raise AlbertError(
            f"The archive {path} holds {name!r}, which is neither a file nor a folder; do not use "
            "it."
        )


def _check_sizes(path: str, members: int, size: int, limit: int) -> None:
    if size > limit or members > _MAX_MEMBERS:
        raise AlbertError(
            f"The archive {path} holds more than {limit / (1 << 30):.3g} GiB or {_MAX_MEMBERS} "
            "files; unpack it yourself if you trust it."
        )
