# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TFRecord framing: finds where records begin and which of them are damaged.

A frame holds the payload's length (uint64, little-endian), a checksum of the length (uint32), the
payload, and a checksum of the payload (uint32); both checksums are masked CRC-32C
(tensorflow/core/lib/io/record_writer.h). A damaged payload loses one record. A damaged length hides
where all later records begin.

TensorFlow's reader gives up a file at its first damaged record. So `read_frames` follows the
lengths itself, to find all of them.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

#: The length and its checksum.
_HEADER = struct.Struct("<QI")
_LENGTH_BYTES, _HEADER_BYTES, _CHECKSUM_BYTES = 8, 12, 4
#: What framing adds to each payload.
FRAME_BYTES = _HEADER_BYTES + _CHECKSUM_BYTES
#: Size of the reads of `read_frames`.
_BLOCK_BYTES = 4 << 20
#: A larger length counts as damaged.
_MAX_RECORD_BYTES = 1 << 30
BAD_PAYLOAD = "its checksum is wrong"
CUT_OFF = "the file is cut off or damaged here, and later records cannot be located"


class Frame(NamedTuple):
    """One record of a file.

    Attributes:
      number: of the record in the file, from 0.
      offset: byte at which the frame begins.
      example: the payload; None if it is damaged.
      fault: what is wrong with the record, "" if it is intact. CUT_OFF: it and all later ones are
        lost.
    """

    number: int
    offset: int
    example: bytes | None
    fault: str

    def place(self, path: str) -> str:
        """Returns file, record, byte and fault as part of a sentence."""
        return f"{path}: record {self.number} (byte {self.offset}): {self.fault}"


def read_consecutive(
    path: tf.Tensor, offset: tf.Tensor, count: tf.Tensor, buffer_bytes: tf.Tensor
) -> tf.data.Dataset:
    """Returns a data set of consecutive records of a file, string scalars.

    TensorFlow 2.15 cannot serialize this data set (it loses byte_offsets), and so cannot optimize a
    pipeline that begins with it. Use it inside a function of another data set.

    Args:
      path: the file, a string scalar.
      offset: int64 scalar: byte at which the first record begins.
      count: int64 scalar: number of records.
      buffer_bytes: int64 scalar: size of the reads.
    """
    import tensorflow as tf

    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=buffer_bytes, byte_offsets=[offset]
    )
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    return dataset.take(count)


def check_lengths(path: bytes, offset: np.int64, size: np.int64) -> np.int64:
    """Checks that the lengths in consecutive records lead to their end, and returns `size`.

    TensorFlow's reader allocates as much as a length says, even 2^60 bytes, and ends the process.

    Args:
      path: the file.
      offset: byte at which the first record begins.
      size: of all records, in bytes.

    Raises:
      ValueError: they do not.
    """
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(path, "rb") as f:
            f.seek(int(offset))
            block = f.read(int(size))
    except tf.errors.OpError:
        return size  # The reader will report it.
    at = 0
    while at < len(block):
        at += FRAME_BYTES + int.from_bytes(block[at : at + _LENGTH_BYTES], "little")
    if at != size:
        raise ValueError(f"{path.decode()} is damaged at or after byte {offset}.")
    return size


def read_frames(path: str) -> Iterator[Frame]:
    """Yields all records of a TFRecord file, including damaged ones, in bounded memory.

    Raises:
      AlbertError: the file is missing or cannot be read.
    """
    import tensorflow as tf

    files.check_file(path, "record file")
    try:
        number = 0
        for offsets, lost in _blocks(path):
            for offset, example in zip(offsets, _payloads(path, offsets)):
                yield Frame(number, offset, example, BAD_PAYLOAD if example is None else "")
                number += 1
            if lost is not None:
                yield Frame(number, lost, None, CUT_OFF)
    except tf.errors.OpError as error:
        raise AlbertError(f"The record file {path} cannot be read: {error.message}.") from error


def map_intact(
    function: Callable[[list], list], items: list, errors: tuple[type[Exception], ...]
) -> list:
    """Maps a list with a function of lists; an item for which it fails by itself becomes None."""
    try:
        return function(items) if items else []
    except errors:
        half = len(items) // 2
        if not half:
            return [None]
        parts = items[:half], items[half:]
        return [result for part in parts for result in map_intact(function, part, errors)]


def _blocks(path: str) -> Iterator[tuple[list[int], int | None]]:
    """Yields the byte offsets of records block by block.

    The last block comes with the offset from which on the file cannot be followed, if there is one.
    """
    import tensorflow as tf

    begin, size = 0, storage.size(path)
    with tf.io.gfile.GFile(path, "rb") as f:
        while begin < size:
            f.seek(begin)
            block = f.read(_BLOCK_BYTES)
            offsets: list[int] = []
            at = 0
            while at + _HEADER_BYTES <= len(block):
                length, checksum = _HEADER.unpack_from(block, at)
                end = at + length + FRAME_BYTES
                is_intact = _masked_crc(block[at : at + _LENGTH_BYTES]) == checksum
                if not is_intact or length > _MAX_RECORD_BYTES or begin + end > size:
                    yield offsets, begin + at
                    return
                offsets.append(begin + at)
                at = end
            if not offsets:  # The file ends within a header.
                yield offsets, begin
                return
            yield offsets, None
            begin += at


@functools.lru_cache(maxsize=1 << 16)
def _masked_crc(data: bytes) -> int:
    """Returns the masked CRC-32C of a few bytes. Cached, as many records have the same length."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(maxsize=1)
def _crc_table() -> list[int]:
    """Returns the 256 entries of the table of CRC-32C (polynomial 0x1EDC6F41, reflected)."""
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    return table


@functools.lru_cache(maxsize=1)
def _read_block() -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns a compiled function (path, byte offset, count) that reads records, string [count]."""
    import tensorflow as tf

    def read(path: tf.Tensor, offset: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        size = tf.constant(_BLOCK_BYTES, tf.int64)
        return read_consecutive(path, offset, count, size).batch(count).get_single_element()

    integer = tf.TensorSpec([], tf.int64)
    signature = [tf.TensorSpec([], tf.string), integer, integer]
    return tf.function(read, signature, autograph=False)


def _payloads(path: str, offsets: list[int]) -> list[bytes | None]:
    """Reads the payloads of consecutive records; None for damaged ones."""
    import tensorflow as tf

    def read(offsets: list[int]) -> list[bytes]:
        return _read_block()(path, offsets[0], len(offsets)).numpy().tolist()

    return map_intact(read, offsets, (tf.errors.DataLossError,))
