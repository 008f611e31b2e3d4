# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Lines of UTF-8 text files, plain or compressed, with errors by file and line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from albert_tf.errors import AlbertError
from albert_tf.io import files

#: Default limit of a line; longer ones are binary data or text without line ends.
MAX_LINE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_UTF8_BOM = b"\xef\xbb\xbf"


def _compressed(raw: IO[bytes], path: str, mode: str) -> IO[bytes]:
    """Returns `raw`, or a file that (de)compresses it according to the suffix of `path`."""
    if path.endswith(".gz"):
        # No time stamp and no name, so that the same text makes the same bytes.
        return gzip.GzipFile(filename="", mode=mode, fileobj=raw, compresslevel=6, mtime=0)
    if path.endswith(".bz2"):
        return bz2.BZ2File(raw, mode)
    if path.endswith(".xz"):
        return lzma.LZMAFile(raw, mode)
    return raw


@contextlib.contextmanager
def new_text_file(
    path: str, inputs: Iterable[str] = (), overwrite: bool = False
) -> Iterator[Callable[[str], None]]:
    """Yields a function that appends text to a `files.new_file` (UTF-8).

    It is compressed according to the suffix of `path`.
    """
    import tensorflow as tf

    with (
        files.new_file(path, inputs, overwrite) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as raw,
        _compressed(raw, path, "wb") as f,
    ):
        yield lambda text: f.write(text.encode("utf-8"))


def _read_blocks(path: str, on_read: Callable[[int], None] | None) -> Iterator[bytes]:
    """Yields the decompressed file in blocks of at most _BLOCK_BYTES."""
    import tensorflow as tf

    files.check_file(path, "text file")
    try:
        with tf.io.gfile.GFile(path, "rb") as raw:
            f = _compressed(raw, path, "rb")
            reported = 0
            while block := f.read(_BLOCK_BYTES):
                if on_read is not None:
                    on_read(raw.tell() - reported)
                    reported = raw.tell()
                yield block
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise AlbertError(
            f"{path} cannot be decompressed ({error}); it is damaged, or its suffix is wrong."
        ) from error
    except tf.errors.OpError as error:
        raise AlbertError(f"{path} cannot be read: {error.message}.") from error


def _decode(data: bytes, path: str, lines_before: int) -> str:
    """Decodes `data`, whose first line is line number lines_before + 1 of `path`."""
    nul = data.find(b"\0")
    if nul >= 0:
        line = lines_before + data.count(b"\n", 0, nul) + 1
        raise AlbertError(f"{path}:{line}: a NUL byte; this is not a UTF-8 text file.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = lines_before + data.count(b"\n", 0, error.start) + 1
        raise AlbertError(
            f"{path}:{line}: not UTF-8 (byte 0x{data[error.start]:02x}); convert the file to UTF-8."
        ) from error


def read_lines(
    path: str,
    max_line_bytes: int = MAX_LINE_BYTES,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file without their line ends, in bounded memory.

    Files ending in .gz, .bz2 and .xz are decompressed. CRLF ends a line like LF; a byte order mark
    at the beginning of the file is dropped.

    Args:
      path: any path that tf.io.gfile can read.
      max_line_bytes: the longest line to accept, at least MAX_LINE_BYTES.
      on_read: called with the number of bytes of the file (as stored) read since the last call.

    Raises:
      AlbertError: the file is missing, damaged or truncated, or a line is not UTF-8, has a NUL byte
        or is too long.
    """
    lines_before = 0
    rest = b""
    for number, block in enumerate(_read_blocks(path, on_read)):
        if number == 0:
            block = block.removeprefix(_UTF8_BOM)
        line_end = block.find(b"\n")
        # Only a line that began in an earlier block can be longer than a block.
        if len(rest) + (line_end if line_end >= 0 else len(block)) > max_line_bytes:
            raise AlbertError(
                f"{path}:{lines_before + 1}: the line is longer than {max_line_bytes} bytes; "
                "break or shorten it (a model reads only the first few hundred words of a text)."
            )
        if line_end < 0:
            rest += block
            continue
        cut = block.rindex(b"\n") + 1
        lines = _decode(rest + block[:cut], path, lines_before).replace("\r\n", "\n").split("\n")
        rest = block[cut:]
        lines.pop()
        yield from lines
        lines_before += len(lines)
    if rest:
        yield _decode(rest, path, lines_before)
