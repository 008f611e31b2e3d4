# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Unpacks archives of releases (.tar.gz) that may be damaged or malicious."""

from __future__ import annotations

import atexit
import os
import posixpath
import shutil
import tarfile
import tempfile
import zlib

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files

#: The largest release, with its optimizer's slots, is below 3 GB.
_MAX_BYTES = 16 << 30
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
    if not tf.io.gfile.exists(path):
        raise AlbertError(f"The archive {path} does not exist.")
    stat = tf.io.gfile.stat(path)
    key = (path, stat.length, stat.mtime_nsec)
    if key not in _unpacked:
        folder = tempfile.mkdtemp(prefix="albert_tf-")
        try:
            _extract(path, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _unpacked[key] = folder
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


def _extract(path: str, folder: str) -> None:
    total = 0
    try:
        with (
            files.space_for(f"the files of {path}, in {folder}"),
            tf.io.gfile.GFile(path, "rb") as f,
            tarfile.open(fileobj=f, mode="r|*", tarinfo=_Header) as archive,
        ):
            for count, member in enumerate(archive, start=1):
                _check_member(path, member)
                total += member.size
                if total > _MAX_BYTES or count > _MAX_MEMBERS:
                    raise AlbertError(
                        f"The archive {path} holds more than {_MAX_BYTES >> 30} GiB or "
                        f"{_MAX_MEMBERS} files; unpack it yourself if you trust it."
                    )
                archive.extract(member, folder, set_attrs=False, **_FILTER)
    except (tarfile.TarError, EOFError, OSError, zlib.error, tf.errors.OpError) as error:
        raise AlbertError(f"The archive {path} is damaged ({error}); get it again.") from error


def _check_member(path: str, member: tarfile.TarInfo) -> None:
    """Raises AlbertError for members that `tarfile.data_filter` accepts or renames."""
    name = posixpath.normpath(member.name)
    if name.startswith(("/", "..")) or "\\" in name or ":" in name:
        raise AlbertError(
            f"The archive {path} has a member outside its folder, {member.name!r}; do not use it."
        )
    # A release has no links, devices or sparse files.
    if not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
        raise AlbertError(
            f"The archive {path} holds {member.name!r}, which is neither a file nor a folder; do "
            "not use it."
        )
