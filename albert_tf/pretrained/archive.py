# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Unpacks archives of releases (.tar.gz, .zip) that may be damaged or malicious."""

from __future__ import annotations

import atexit
import os
import posixpath
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from typing import BinaryIO

import tensorflow as tf

from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files

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
#: The folder that macOS adds to its .zip files.
_MACOS = "__MACOSX"
_BLOCK = 1 << 20
_unpacked: dict[tuple[str, int, int], str] = {}


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
    status = tf.io.gfile.stat(path)
    key = (path, status.length, status.mtime_nsec)
    if key not in _unpacked:
        folder = tempfile.mkdtemp(prefix="albert_tf-")
        try:
            # Errors that name the files name the archive.
            inner = os.path.join(folder, os.path.basename(path))
            os.mkdir(inner)
            limit = min(_MAX_BYTES, max(_MAX_SMALL_BYTES, _MAX_RATIO * status.length))
            _extract(path, inner, limit)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _unpacked[key] = inner
    folder = _unpacked[key]
    while len(names := os.listdir(folder)) == 1 and os.path.isdir(f"{folder}/{names[0]}"):
        folder = os.path.join(folder, names[0])
    return folder


class _Header(tarfile.TarInfo):
    """Refuses large headers of long names and of attributes: tarfile reads them into memory."""

    @classmethod
    def frombuf(cls, *args: object) -> tarfile.TarInfo:
        """See tarfile.TarInfo."""
        member = super().frombuf(*args)
        if member.type in _EXTENSIONS and member.size > _MAX_EXTENSION_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


def _extract(path: str, folder: str, limit: int) -> None:
    """Extracts an archive into a folder, at most `limit` bytes."""
    try:
        with (
            files.space_for(f"the files of {path}, in {folder}"),
            tf.io.gfile.GFile(path, "rb") as f,
        ):
            (_extract_zip if path.endswith(".zip") else _extract_tar)(path, f, folder, limit)
    except (*_DAMAGED, tf.errors.OpError) as error:
        # The whole message of the system's errors names the temporary folder.
        reason = getattr(error, "strerror", None) or first_line(error)
        raise AlbertError(f"The archive {path} is damaged ({reason}); get it again.") from error


def _extract_tar(path: str, f: BinaryIO, folder: str, limit: int) -> None:
    total = 0
    with tarfile.open(fileobj=f, mode="r|*", tarinfo=_Header) as archive:
        for count, member in enumerate(archive, start=1):
            _check_name(path, member.name)
            # A release has no links, devices or sparse files.
            plain = member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
            _check_kind(path, member.name, plain)
            total += member.size
            _check_sizes(path, count, total, limit)
            archive.extract(member, folder, set_attrs=False, **_FILTER)


def _extract_zip(path: str, f: BinaryIO, folder: str, limit: int) -> None:
    """Extracts the members of a .zip file, which are never larger than they say."""
    with zipfile.ZipFile(f) as archive:
        # Before any is written.
        for member in archive.infolist():
            _check_name(path, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 if not made on Unix.
            _check_kind(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        sizes = [member.file_size for member in archive.infolist()]
        _check_sizes(path, len(sizes), sum(sizes), limit)
        for member in archive.infolist():
            target = os.path.join(folder, posixpath.normpath(member.filename))
            if member.is_dir():
                os.makedirs(target, exist_ok=True)
            elif not member.filename.startswith(f"{_MACOS}/"):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with archive.open(member) as source, open(target, "xb") as copy:
                    shutil.copyfileobj(source, copy, _BLOCK)


def _check_sizes(path: str, members: int, size: int, limit: int) -> None:
    if size > limit or members > _MAX_MEMBERS:
        raise AlbertError(
            f"The archive {path} holds more than {limit / (1 << 30):.3g} GiB or {_MAX_MEMBERS} "
            "files; unpack it yourself if you trust it."
        )


def _check_name(path: str, name: str) -> None:
    """Raises AlbertError for names that `tarfile.data_filter` and `zipfile` accept or change."""
    normal = posixpath.normpath(name)
    if normal.startswith(("/", "..")) or "\\" in name or ":" in name:
        raise AlbertError(
            f"The archive {path} has a member outside its folder, {name!r}; do not use it."
        )


def _check_kind(path: str, name: str, is_plain: bool) -> None:
    if not is_plain:
        raise AlbertError(
            f"The archive {path} holds {name!r}, which is neither a file nor a folder; do not use "
            "it."
        )
