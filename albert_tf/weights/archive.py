# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Archives of releases (.tar.gz), unpacked without trusting them."""

from __future__ import annotations

import atexit
import functools
import os
import posixpath
import shutil
import tarfile
import tempfile
import zlib

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files

ENDINGS = (".tar.gz", ".tgz", ".tar")
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
_unpacked: dict[tuple[str, int, int], str] = {}


def unpack(path: str) -> str:
    """Unpacks an archive into a temporary folder, once a process; it is deleted at the end.

    Returns:
      the folder of its files: the one in the archive if that is all there is in it.

    Raises:
      AlbertError: the archive is missing, damaged or too large, or has a member that is neither a
        file nor a folder below the archive's own.
    """
    if not tf.io.gfile.exists(path):
        raise AlbertError(f"The archive {path} does not exist.")
    stat = tf.io.gfile.stat(path)
    key = (path, stat.length, stat.mtime_nsec)
    if key not in _unpacked:
        folder = tempfile.mkdtemp(prefix="albert_tf-")
        remove = functools.partial(shutil.rmtree, folder, ignore_errors=True)
        try:
            with files.space_for(f"what is in {path}, in {folder}"):
                _extract(path, folder)
            atexit.register(remove)
        except AlbertError:
            remove()
            raise
        except (tarfile.TarError, EOFError, OSError, zlib.error, tf.errors.OpError) as error:
            remove()
            raise AlbertError(f"The archive {path} is damaged ({error}); get it again.") from error
        _unpacked[key] = folder
    folder = _unpacked[key]
    while len(inside := os.listdir(folder)) == 1 and os.path.isdir(f"{folder}/{inside[0]}"):
        folder = os.path.join(folder, inside[0])
    return folder


class _Header(tarfile.TarInfo):
    """Headers of long names and of attributes are read into memory whole, so must be small."""

    @classmethod
    def frombuf(cls, *args: object) -> tarfile.TarInfo:
        """See tarfile.TarInfo."""
        member = super().frombuf(*args)
        if member.type in _EXTENSIONS and member.size > _MAX_EXTENSION_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


def _extract(path: str, folder: str) -> None:
    total = 0
    with (
        tf.io.gfile.GFile(path, "rb") as f,
        tarfile.open(fileobj=f, mode="r|*", tarinfo=_Header) as archive,
    ):
        for count, member in enumerate(archive, start=1):
            name = posixpath.normpath(member.name)
            if name.startswith(("/", "..")) or "\\" in name or ":" in name:
                raise AlbertError(
                    f"The archive {path} wants to write {member.name!r}, which is outside of it; "
                    "do not use it."
                )
            # Links, devices and sparse files have no place in a release.
            if not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
                raise AlbertError(
                    f"The archive {path} holds {member.name!r}, which is neither a file nor a "
                    "folder; do not use it."
                )
            total += member.size
            if total > _MAX_BYTES or count > _MAX_MEMBERS:
                raise AlbertError(
                    f"The archive {path} holds more than {_MAX_BYTES >> 30} GiB or {_MAX_MEMBERS} "
                    "files; unpack it yourself if you trust it."
                )
            target = os.path.join(folder, name)
            if member.isdir():
                os.makedirs(target, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.extractfile(member) as source, open(target, "xb") as out:
                shutil.copyfileobj(source, out)
