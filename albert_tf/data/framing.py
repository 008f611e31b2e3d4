# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TFRecord files: reads consecutive records, and finds damaged ones.

A record is framed by its length (uint64, little-endian), a checksum of the length (uint32), and
after the payload a checksum of it (tensorflow/core/lib/io/record_writer.h). TensorFlow's reader
checks both. But it gives up a file at the first damaged record, and allocates as much as a length
says, even 2^60 bytes, which ends the process. So lengths are followed here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

_LENGTH_BYTES, _HEADER_BYTES = 8, 12
#: What framing adds to each payload.
FRAME_BYTES = 16
#: Size of the reads of `read_frames`.
_BLOCK_BYTES = 4 << 20
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
    """Checks that the lengths in `size` bytes of records, from byte `offset` on, lead to their end.

    Returns `size`.

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
    if _bounds(block)[-1] != size:
        raise ValueError(f"{path.decode()} is damaged at or after byte {offset}.")
    return size


def read_frames(path: str) -> Iterator[Frame]:
    """Yields all records of a TFRecord file, including damaged ones, in bounded memory.

    Raises:
      AlbertError: the file is missing or cannot be read.
    """
    import tensorflow as tf

    files.check_file(path, "record file")
    number = end = 0
    damaged: list[Frame] = []  # Since the last intact record.
    try:
        for offsets in _offsets(path):
            end = offsets.pop()
            for offset, example in zip(offsets, _payloads(path, offsets)):
                if example is None:
                    damaged.append(Frame(number, offset, None, BAD_PAYLOAD))
                else:
                    yield from damaged
                    damaged.clear()
                    yield Frame(number, offset, example, "")
                number += 1
        if end == storage.size(path):
            yield from damaged
        else:  # One of the damaged records has a wrong length.
            damaged.append(Frame(number, end, None, CUT_OFF))
            yield damaged[0]._replace(fault=CUT_OFF)
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


def _bounds(block: bytes) -> list[int]:
    """Returns where the records begin that a block holds completely, and where the last one ends.

    Follows their lengths from the beginning of the block, up to a run of zeros, which many damaged
    files have: not even the checksum of the length 0 is 0.
    """
    bounds, end = [], 0
    while end <= len(block):
        bounds.append(end)
        if not any(block[end : end + _HEADER_BYTES]):
            break
        end += FRAME_BYTES + _length(block, end)
    return bounds


def _length(block: bytes, at: int) -> int:
    return int.from_bytes(block[at : at + _LENGTH_BYTES], "little")


def _offsets(path: str) -> Iterator[list[int]]:
    """Yields the `_bounds` of a file block by block, as far as its lengths can be followed."""
    import tensorflow as tf

    begin, left = 0, storage.size(path)
    with tf.io.gfile.GFile(path, "rb") as f:
        while left:
            f.seek(begin)
            block = f.read(_BLOCK_BYTES)
            bounds = _bounds(block)
            if not bounds[-1]:  # The record is larger than the block, or its length is wrong.
                length = _length(block, 0)
                if not length or FRAME_BYTES + length > left:
                    yield [begin]
                    return
                # TensorFlow checks the length's checksum before it reads so much.
                bounds = [0, FRAME_BYTES + length]
            yield [begin + at for at in bounds]
            begin, left = begin + bounds[-1], left - bounds[-1]


def _payloads(path: str, offsets: list[int]) -> list[bytes | None]:
    """Reads the payloads of consecutive records; None for damaged ones."""
    import tensorflow as tf

    def read(offsets: list[int]) -> list[bytes]:
        records = read_consecutive(path, offsets[0], len(offsets), _BLOCK_BYTES)
        return records.batch(len(offsets)).get_single_element().numpy().tolist()

    return map_intact(read, offsets, (tf.errors.DataLossError,))
