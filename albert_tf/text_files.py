# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Lines of UTF-8 text files, plain or compressed, with errors by file and line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Iterator
from typing import IO

from albert_tf.errors import AlbertError

#: Longer lines are refused by default: they are binary data or text without line ends.
MAX_LINE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz")
_UTF8_BOM = b"\xef\xbb\xbf"


@contextlib.contextmanager
def open_binary(path: str, mode: str = "rb") -> Iterator[IO[bytes]]:
    """Opens a file through tf.io.gfile; .gz, .bz2 and .xz are (de)compressed on the way.

    Args:
      path: any path tf.io.gfile knows.
      mode: "rb" or "wb".
    """
    import tensorflow as tf

    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(tf.io.gfile.GFile(path, mode))
        if path.endswith(".gz"):
            # No time stamp and no name, so that equal text gives equal bytes.
            yield stack.enter_context(
                gzip.GzipFile(filename="", mode=mode, fileobj=raw, compresslevel=6, mtime=0)
            )
        elif path.endswith(".bz2"):
            yield stack.enter_context(bz2.BZ2File(raw, mode))
        elif path.endswith(".xz"):
            yield stack.enter_context(lzma.LZMAFile(raw, mode))
        else:
            yield raw


def _read_blocks(path: str) -> Iterator[bytes]:
    """Blocks of at most _BLOCK_BYTES of the decompressed file, none empty."""
    import tensorflow as tf

    if not tf.io.gfile.exists(path):
        raise AlbertError(f"The text file {path} does not exist.")
    if tf.io.gfile.isdir(path):
        raise AlbertError(f"{path} is a folder; give text files, for example {path}/*.txt.")
    try:
        with open_binary(path) as f:
            while block := f.read(_BLOCK_BYTES):
                yield block
    except EOFError as error:
        raise AlbertError(f"{path} is truncated: its compressed data ends too early.") from error
    except (OSError, zlib.error, lzma.LZMAError) as error:
        raise AlbertError(
            f"{path} cannot be decompressed ({error}); it is damaged, or its suffix is wrong."
        ) from error
    except tf.errors.OpError as error:
        raise AlbertError(f"{path} cannot be read: {error.message}.") from error


def _decode(data: bytes, path: str, lines_before: int) -> str:
    """Text of `data`, whose first line is line number lines_before + 1 of `path`."""
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


def read_lines(path: str, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file without their line ends, in bounded memory.

    Files ending in .gz, .bz2 and .xz are decompressed. CRLF ends a line like LF; a byte order mark
    at the beginning of the file is dropped.

    Args:
      path: any path tf.io.gfile can read.
      max_line_bytes: the longest line to accept, at least MAX_LINE_BYTES.

    Raises:
      AlbertError: the file is missing, damaged or truncated, or a line is not UTF-8, has a NUL
        byte or is too long.
    """
    lines_before = 0
    rest = b""
    first = True
    for block in _read_blocks(path):
        if first and block.startswith(_UTF8_BOM):
            block = block[len(_UTF8_BOM) :]
        first = False
        line_end = block.find(b"\n")
        # Only a line that began in an earlier block can be longer than a block.
        if len(rest) + (line_end if line_end >= 0 else len(block)) > max_line_bytes:
            raise AlbertError(
                f"{path}:{lines_before + 1}: the line is longer than {max_line_bytes} bytes; "
                "break the text into lines."
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
