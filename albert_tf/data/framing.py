# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TFRecord framing: where the records of a file begin, and which of them are damaged.

A record is framed by its length (uint64, little endian), the length's checksum (uint32), and after
the payload the payload's checksum (uint32), both masked CRC-32C (tensorflow/core/lib/io
record_writer.h). A payload that was damaged is one record lost. A length that was damaged hides
where all records after it begin.

TensorFlow's own reader gives up a file at its first damaged record, and the program where a length
is absurd but has the right checksum: it asks for so much memory. So lengths are looked at first.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from albert_tf.errors import AlbertError

if TYPE_CHECKING:
    import tensorflow as tf

#: Bytes that framing puts around a record: length and its checksum before, checksum after.
FRAME_BYTES = 16
#: How much of a file to read at a time.
READ_BYTES = 1 << 20
_HEADER_BYTES = 12
_CHECKSUM_BYTES = 4
_BLOCK_BYTES = 4 << 20
#: Records larger than this are taken for damaged lengths.
_MAX_RECORD_BYTES = 1 << 30
BAD_PAYLOAD = "its checksum is wrong"
CUT_OFF = (
    "the file is cut off or damaged here, and what comes after cannot be told apart into records"
)


class Frame(NamedTuple):
    """One record of a file.

    Attributes:
      number: of the record, from 0.
      offset: byte at which its frame begins.
      example: the payload; None if it is damaged.
      fault: what is wrong, "" if nothing is; CUT_OFF if the file's last records are lost.
    """

    number: int
    offset: int
    example: bytes | None
    fault: str


def read_piece(
    path: tf.Tensor | str,
    offset: tf.Tensor,
    count: tf.Tensor,
    buffer_bytes: tf.Tensor | int = READ_BYTES,
) -> tf.data.Dataset:
    """Consecutive records of a file, string scalars.

    TensorFlow 2.15 cannot serialize this data set (it forgets byte_offsets), and so cannot optimize
    a pipeline that begins with it; inside a function of another data set it need not.

    Args:
      path: of the file.
      offset: int64 scalar: the byte at which the first record begins.
      count: int64 scalar: how many records.
      buffer_bytes: how much of the file to read at a time.
    """
    import tensorflow as tf

    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=tf.reshape(path, [1]),
        compression_type="",
        buffer_size=tf.cast(buffer_bytes, tf.int64),
        byte_offsets=tf.reshape(offset, [1]),
    )
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    return dataset.take(count)


def read_pieces(
    path: tf.Tensor | str, offsets: tf.Tensor | list[int], counts: tf.Tensor | list[int]
) -> tf.data.Dataset:
    """Records of a file, string scalars: counts[i] of them from byte offsets[i] on, for every i."""
    import tensorflow as tf

    pieces = tf.cast(offsets, tf.int64), tf.cast(counts, tf.int64)

    # AutoGraph's conversion would take longer than everything else here.
    @tf.autograph.experimental.do_not_convert
    def read(offset: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
        return read_piece(path, offset, count)

    return tf.data.Dataset.from_tensor_slices(pieces).flat_map(read)


def read_frames(path: str) -> Iterator[Frame]:
    """Yields every record of a TFRecord file, damaged ones too, in bounded memory.

    Raises:
      AlbertError: the file is missing or cannot be read.
    """
    import tensorflow as tf

    if not tf.io.gfile.exists(path):
        raise AlbertError(f"The record file {path} does not exist.")
    try:
        number = 0
        for offsets, cut_off in _blocks(path):
            for offset, example in zip(offsets, _payloads(path, offsets)):
                yield Frame(number, offset, example, BAD_PAYLOAD if example is None else "")
                number += 1
            if cut_off is not None:
                yield Frame(number, cut_off, None, CUT_OFF)
    except tf.errors.OpError as error:
        raise AlbertError(f"The record file {path} cannot be read: {error.message}.") from error


def end_checksums(path: str) -> str:
    """The stored checksums of a file's first and last record, in hex; "" for an empty file.

    They stay the same when a payload is damaged. The file must not be cut off.
    """
    import tensorflow as tf

    size = tf.io.gfile.stat(path).length
    if not size:
        return ""
    with tf.io.gfile.GFile(path, "rb") as f:
        (length,) = struct.unpack_from("<Q", f.read(_HEADER_BYTES))
        ends = []
        for end in (length + FRAME_BYTES, size):
            f.seek(end - _CHECKSUM_BYTES)
            ends.append(f.read(_CHECKSUM_BYTES).hex())
    return " ".join(ends)


def _blocks(path: str) -> Iterator[tuple[list[int], int | None]]:
    """Offsets of records by block of the file; with the last, where the file cannot be followed."""
    import tensorflow as tf

    size = tf.io.gfile.stat(path).length
    begin = 0
    with tf.io.gfile.GFile(path, "rb") as f:
        while begin < size:
            f.seek(begin)
            block = f.read(_BLOCK_BYTES)
            offsets: list[int] = []
            at, cut_off = 0, None
            while at + _HEADER_BYTES <= len(block):
                (length,) = struct.unpack_from("<Q", block, at)
                if length > _MAX_RECORD_BYTES or begin + at + length + FRAME_BYTES > size:
                    cut_off = begin + at
                    break
                offsets.append(begin + at)
                at += length + FRAME_BYTES
            else:
                if begin + at < size < begin + at + _HEADER_BYTES or at == 0:
                    cut_off = begin + at
            intact = _intact_lengths(block, np.array(offsets, np.int64) - begin)
            if intact < len(offsets):
                cut_off = offsets[intact]
            yield offsets[:intact], cut_off
            if cut_off is not None:
                return
            begin += at


def _intact_lengths(block: bytes, starts: np.ndarray) -> int:
    """How many of the headers that start there have the right checksum, up to the first wrong."""
    if not len(starts):
        return 0
    headers = np.frombuffer(block, np.uint8)[starts[:, None] + np.arange(_HEADER_BYTES)]
    stored = np.ascontiguousarray(headers[:, 8:]).view("<u4")[:, 0]
    wrong = _masked_crc(headers[:, :8]) != stored
    return int(wrong.argmax()) if wrong.any() else len(starts)


def _masked_crc(rows: np.ndarray) -> np.ndarray:
    """Masked CRC-32C of rows of bytes: uint8 [n, m] to uint32 [n]."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _crc_table()[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)


@functools.lru_cache(maxsize=1)
def _crc_table() -> np.ndarray:
    """The table of CRC-32C (polynomial 0x1EDC6F41, reflected), uint32 [256]."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table.astype(np.uint32)


@functools.lru_cache(maxsize=1)
def _read_block() -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns a function of path, byte offset and number of records that reads string [number]."""
    import tensorflow as tf

    def read(path: tf.Tensor, offset: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return read_pieces(path, [offset], [count]).batch(count).get_single_element()

    number = tf.TensorSpec([], tf.int64)
    signature = [tf.TensorSpec([], tf.string), number, number]
    return tf.function(read, signature, autograph=False)


def _payloads(path: str, offsets: list[int]) -> list[bytes | None]:
    """The payloads of a file's records that follow each other; None for damaged ones."""
    import tensorflow as tf

    count = len(offsets)
    if not count:
        return []
    try:
        return _read_block()(path, offsets[0], count).numpy().tolist()
    except tf.errors.DataLossError:
        if count == 1:
            return [None]
        half = count // 2
        return _payloads(path, offsets[:half]) + _payloads(path, offsets[half:])
