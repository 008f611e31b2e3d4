# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Downloads archives of models, and unpacks archives that may be damaged or malicious."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from typing import Any

from albert_tf.errors import AlbertError, first_line, root_cause
from albert_tf.io import files, storage
from albert_tf.io.log import log
from albert_tf.io.progress import Progress

#: Begins addresses, also those to which a server leads.
WEB = "https://"
#: Attempts, half the seconds before the third, which double, and the most that a server may ask
#: for.
_ATTEMPTS, _PAUSE, _MAX_PAUSE = 5, 1.0, 120.0
#: Seconds without an answer that end an attempt, or with fewer bytes per second than these.
_TIMEOUT, _SLOWEST = 30.0, 1000.0
_BLOCK = 1 << 12
#: An archive may hold so many times its size, as weights hardly shrink when they are packed; a
#: small one may hold so many bytes.
_MAX_RATIO, _MAX_SMALL_BYTES = 20, 1 << 30


def download(url: str, path: str, sha256: str = "") -> str:
    """Downloads an archive unless it is there, prints its size and SHA-256, and returns `path`.

    The file gets its name when it is complete and all that it holds can be read.

    Args:
      url: an address, https://….
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
    elsewhere = f"or download the file elsewhere and copy it to {path}"
    with files.atomic_path(path) as temporary:
        advice = f"check the address and the network and run the same command again, {elsewhere}"
        with _explained(f"{url} cannot be downloaded", advice):
            kind = _receive(url, temporary, os.path.basename(path))
        size, digest = os.path.getsize(temporary), files.sha256(temporary)
        _check_sha256(url, digest, sha256 or digest)
        problem = f"{url} sends no intact archive, but {size:,} bytes of {kind}"
        with _explained(problem, f"open it in a browser, {elsewhere}"), _new_folder() as folder:
            _extract(temporary, folder)
    log.warning(f"Downloaded {url}: {size:,} bytes, SHA-256 {digest}. It is kept as {path}.")
    return path


def _check_sha256(what: str, found: str, expected: str) -> None:
    if found != expected.lower():
        raise AlbertError(f"{what} has the SHA-256 {found}, not {expected}; do not use it.")


def _receive(url: str, temporary: str, name: str) -> str:
    """Asks for a file, from its beginning each time, until it is there; returns its type."""
    import requests  # It takes a while.
    from urllib3.util import Retry

    class Patient(Retry):
        def parse_retry_after(self, retry_after) -> float:
            return min(super().parse_retry_after(retry_after), _MAX_PAUSE)

    retries = Patient(
        _ATTEMPTS - 1,
        backoff_factor=_PAUSE,
        status_forcelist=(408, 429, 500, 502, 503, 504),
        raise_on_status=False,
    )
    with requests.Session() as session:
        session.adapters.clear()
        session.mount(WEB, requests.adapters.HTTPAdapter(max_retries=retries))
        session.headers["Accept-Encoding"] = "identity"
        for attempt in range(1, _ATTEMPTS + 1):
            with session.get(url, stream=True, timeout=_TIMEOUT) as response:
                response.raise_for_status()
                try:
                    _copy(response, temporary, name)
                    break
                except (requests.RequestException, TimeoutError):
                    if attempt == _ATTEMPTS:
                        raise
    return response.headers.get("Content-Type", "an unknown type")


def _copy(response: Any, temporary: str, name: str) -> None:
    """Writes the body of an answer of requests."""
    begin = time.monotonic()
    progress = Progress(f"download {name}", response.raw.length_remaining)
    with progress, open(temporary, "wb") as f:
        for block in response.iter_content(_BLOCK):
            progress.update(f.write(block))
            if time.monotonic() - begin > _TIMEOUT + f.tell() / _SLOWEST:
                raise TimeoutError(f"it sends fewer than {_SLOWEST:,.0f} bytes per second")


def unpack(path: str) -> str:
    """Unpacks an archive into a temporary folder, which is deleted when the process ends.

    A second call for the same file returns the same folder.

    Returns:
      The folder with the files. If the archive holds a single folder, that one.

    Raises:
      AlbertError: the archive is missing, damaged or too large, or has a member that leads outside
        of it or is a device.
    """
    files.check_file(path, "archive")
    status = storage.gfile().stat(path)
    return _unpack(path, status.length, status.mtime_nsec)


def _new_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="albert_tf-")


@functools.cache
def _unpack(path: str, _length: int, _modified_nanoseconds: int) -> str:
    """Unpacks this version of an archive."""
    temporary = _new_folder()
    # Errors that name the files name the archive.
    folder = os.path.join(temporary.name, os.path.basename(path))
    try:
        with files.space_for(f"the files of {path}"):
            os.mkdir(folder)
            with _explained(f"The archive {path} is damaged or unsafe", "get another copy"):
                _extract(path, folder)
    except BaseException:
        temporary.cleanup()
        raise
    atexit.register(temporary.cleanup)
    while True:
        names = [name for name in os.listdir(folder) if name != "__MACOSX"]  # macOS adds this one.
        if len(names) != 1 or not os.path.isdir(os.path.join(folder, names[0])):
            return folder
        folder = os.path.join(folder, names[0])


@contextlib.contextmanager
def _explained(what: str, advice: str) -> Iterator[None]:
    """Turns what the libraries say of a download or an archive into an AlbertError."""
    try:
        yield
    except Exception as error:  # The libraries raise errors of many types.
        if isinstance(error, AlbertError) or storage.no_space(error):
            raise
        cause = root_cause(error)
        # Errors of the system name the temporary folder.
        reason = getattr(cause, "strerror", None) or first_line(cause)
        raise AlbertError(f"{what} ({reason}); {advice}.") from error


def _extract(path: str, folder: str) -> None:
    """Writes an archive's files to a folder, and nothing outside of it."""
    limit, total = max(_MAX_SMALL_BYTES, _MAX_RATIO * storage.size(path)), 0

    def check(size) -> None:
        if size > limit:
            raise tarfile.ReadError(f"it holds more than {limit / (1 << 30):.3g} GiB")

    with storage.gfile().GFile(path, "rb") as f:
        is_zip = f.read(2) == b"PK"
        f.seek(0)
        if is_zip:
            # The library makes no links, and leaves ".." out of paths.
            with zipfile.ZipFile(f) as archive:
                check(sum(member.file_size for member in archive.infolist()))
                archive.extractall(folder)
        else:
            with tarfile.open(fileobj=f, mode="r|*") as archive:
                for member in archive:
                    total += member.size
                    check(total)
                    archive.extract(member, folder, filter="data")
    if not os.listdir(folder):
        raise tarfile.ReadError("it holds nothing")
