# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Downloads archives of models, and unpacks archives that may be damaged or malicious."""

from __future__ import annotations

import atexit
import contextlib
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
from email.utils import mktime_tz, parsedate_tz
from typing import IO, Any, BinaryIO

from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files, storage
from albert_tf.io.log import log
from albert_tf.io.progress import Progress

#: Attempts, half the seconds after the first, which double, and the most that a server may ask for.
_ATTEMPTS, _PAUSE, _MAX_PAUSE = 5, 1.0, 120.0
#: Seconds without an answer that end an attempt, or with fewer bytes per second than these.
_TIMEOUT, _SLOWEST = 30.0, 1000.0
_BLOCK = 1 << 20
#: An archive may hold so many times its size, as weights hardly shrink when they are packed; a
#: small one may hold so many bytes.
_MAX_RATIO, _MAX_SMALL_BYTES = 20, 1 << 30
_MAX_MEMBERS = 1000
#: tarfile reads headers, such as long names, into memory.
_MAX_HEADER_BYTES = 1 << 20


def download(url: str, path: str, sha256: str = "") -> str:
    """Downloads an archive unless it is there, prints its size and SHA-256, and returns `path`.

    The file gets its name when it is complete and all that it holds can be read.

    Args:
      url: an address that urllib can open.
      path: where the file is kept, on the local file system.
      sha256: the hexadecimal SHA-256 that the file must have; "" for any.

    Raises:
      AlbertError: the server cannot be reached or sends something else, or no file can be written.
      StoppedError: there is no space left.
    """
    if os.path.exists(path):
        if sha256:
            _check_sha256(path, files.sha256(path), sha256)
        return path
    files.check_output_folder(os.path.dirname(path))
    with files.atomic_path(path) as temporary:
        kind = _receive(url, temporary, path)
        size, digest = os.path.getsize(temporary), files.sha256(temporary)
        _check_sha256(url, digest, sha256 or digest)
        with _readable(
            f"{url} sends no intact archive, but {size:,} bytes of {kind}",
            f"open it in a browser, or download the file elsewhere and copy it to {path}",
        ):
            _extract(url, temporary, size)
    log.warning(f"Downloaded {url}: {size:,} bytes, SHA-256 {digest}. It is kept as {path}.")
    return path


def _check_sha256(what: str, found: str, expected: str) -> None:
    if found != expected.lower():
        raise AlbertError(f"{what} has the SHA-256 {found}, not {expected}; do not use it.")


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: urllib.request.Request, *given: Any) -> Any:
        """Refuses other schemes, such as http, on the way."""
        if given[-1].partition(":")[0] != request.type:
            raise AlbertError(f"{request.full_url} leads to {given[-1]}; do not use it.")
        return super().redirect_request(request, *given)


def _receive(url: str, temporary: str, path: str) -> str:
    """Asks for a file, from its beginning each time, until it is there; returns its type."""
    opener = urllib.request.build_opener(_Redirects)
    for attempt in range(1, _ATTEMPTS + 1):
        again, pause = attempt < _ATTEMPTS, _PAUSE * 2**attempt
        try:
            with opener.open(url, timeout=_TIMEOUT) as response, open(temporary, "wb") as f:
                if response.status == http.HTTPStatus.OK:
                    _copy(response, f, os.path.basename(path))
                    return response.headers.get_content_type()
            again, reason = False, f"the server answers {response.status} {response.reason}"
        except AlbertError:
            raise
        except urllib.error.HTTPError as error:
            error.close()
            again = again and (error.code >= 500 or error.code in (408, 429))
            reason, asked = f"the server answers {first_line(error)}", error.headers["Retry-After"]
            if date := parsedate_tz(asked):
                pause = mktime_tz(date) - time.time()
            elif asked and asked.isdecimal():
                pause = float(asked)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if storage.no_space(error):
                raise
            again = again and not isinstance(error, (ValueError, http.client.InvalidURL))
            reason = first_line(getattr(error, "reason", None) or error)
        if not again or pause > _MAX_PAUSE:
            break
        time.sleep(max(0.0, pause))
    later = f", not before {pause:,.0f} seconds have passed" if again else ""
    raise AlbertError(
        f"{url} cannot be downloaded ({reason}); check the address and the network and run the "
        f"same command again{later}, or download the file elsewhere and copy it to {path}."
    )


def _copy(response: http.client.HTTPResponse, f: BinaryIO, name: str) -> None:
    """Writes the body of an answer; an OSError if it ends too early or comes too slowly."""
    total, size, spare, last = response.length, 0, _TIMEOUT, time.monotonic()
    with Progress(f"download {name}", total) as progress:
        while block := response.read1(_BLOCK):
            size += f.write(block)
            progress.update(len(block))
            spare, last = spare + last - time.monotonic(), time.monotonic()
            spare = min(spare + len(block) / _SLOWEST, _TIMEOUT)
            if spare < 0:
                raise TimeoutError(f"it sends fewer than {_SLOWEST:,.0f} bytes per second")
    if total is not None and size != total:
        raise ConnectionError(f"the connection ended after {size:,} of {total:,} bytes")
    os.fsync(f.fileno())


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
        with files.space_for(f"the files of {path}"):
            os.mkdir(folder)
            with _readable(f"The archive {path} is damaged", "get it again"):
                _extract(path, path, length, folder)
    except BaseException:
        temporary.cleanup()
        raise
    atexit.register(temporary.cleanup)
    while len(names := os.listdir(folder)) == 1 and os.path.isdir(f"{folder}/{names[0]}"):
        folder = os.path.join(folder, names[0])
    return folder


@contextlib.contextmanager
def _readable(what: str, advice: str) -> Iterator[None]:
    """Turns what the libraries say of a damaged archive into an AlbertError."""
    try:
        yield
    except Exception as error:  # The libraries raise errors of many types.
        if isinstance(error, AlbertError) or storage.no_space(error):
            raise
        # Errors of the system name the temporary folder.
        reason = getattr(error, "strerror", None) or first_line(error)
        raise AlbertError(f"{what} ({reason}); {advice}.") from error


def _extract(name: str, path: str, length: int, folder: str | None = None) -> None:
    """Writes an archive's files to a folder, and makes no links; without a folder only reads them.

    Errors call the archive, which has `length` bytes, by `name`.
    """
    limit, total, count = max(_MAX_SMALL_BYTES, _MAX_RATIO * length), 0, 0
    with storage.gfile().GFile(path, "rb") as f:
        is_zip = f.read(2) == b"PK"
        f.seek(0)
        for member, size, is_plain, content in (_zip_members if is_zip else _tar_members)(f):
            target = posixpath.normpath(member)
            if target.startswith(("/", "..")) or "\\" in member or ":" in member:
                raise AlbertError(
                    f"The archive {name} has a member outside its folder, {member!r}; do not use "
                    "it."
                )
            if not is_plain:
                raise AlbertError(
                    f"The archive {name} holds {member!r}, which is neither a file nor a folder; "
                    "do not use it."
                )
            total, count = total + size, count + 1
            if total > limit or count > _MAX_MEMBERS:
                raise AlbertError(
                    f"The archive {name} holds more than {limit / (1 << 30):.3g} GiB or "
                    f"{_MAX_MEMBERS} files; unpack it yourself if you trust it."
                )
            if folder:
                target = os.path.join(folder, target)
                os.makedirs(os.path.dirname(target) if content else target, exist_ok=True)
            if content:
                with open(target if folder else os.devnull, "wb") as out:
                    shutil.copyfileobj(content, out)
    if not count:
        raise tarfile.ReadError("it holds nothing")


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
