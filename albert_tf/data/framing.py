# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TFRecord files: reads consecutive records, and names the damaged ones.

A record is framed by its length (uint64, little-endian), a checksum of the length (uint32), and
after the payload a checksum of it (tensorflow/core/lib/io/record_writer.h). TensorFlow's reader
checks both. But it allocates as much as a length says, even 2^60 bytes, which ends the process. So
lengths are followed here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

_LENGTH_BYTES = 8
#: What framing adds to each payload.
FRAME_BYTES = 16
#: Size of the reads of `read_frames`.
_BLOCK_BYTES = 4 << 20


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


class Frame(NamedTuple):
    """A record: the byte of the file at which it begins, its payload, and what is wrong with it."""

    byte: int
    example: bytes
    fault: str = ""


def read_frames(path: str) -> Iterator[Frame]:
    """Yields all records of a TFRecord file, faulty ones too, in bounded memory.

    After a record whose length is wrong, no other one can be located.

    Raises:
      AlbertError: the file is missing or cannot be read.
    """
    import tensorflow as tf

    def read(offset: int, count: int) -> list[bytes]:
        dataset = read_consecutive(path, offset, count, _BLOCK_BYTES)
        return dataset.batch(count).get_single_element().numpy().tolist()

    files.check_file(path, "record file")
    begin = 0
    try:
        size = storage.size(path)
        with tf.io.gfile.GFile(path, "rb") as f:
            while begin < size:
                f.seek(begin)
                block = f.read(_BLOCK_BYTES)
                bounds = _bounds(block)
                if len(bounds) == 1:  # The record is larger than the block, or its length is wrong.
                    bounds.append(_end(block, 0))
                    if begin + bounds[1] > size:
                        yield Frame(begin, b"", "the file is cut off or damaged")
                        return
                places = [begin + bound for bound in bounds]
                try:
                    yield from map(Frame, places, read(begin, len(bounds) - 1))
                except tf.errors.DataLossError:
                    for place in places[:-1]:
                        try:
                            yield Frame(place, *read(place, 1))
                        except tf.errors.DataLossError:
                            yield Frame(place, b"", "its checksum is wrong")
                begin = places[-1]
    except tf.errors.OpError as error:
        raise AlbertError(f"The record file {path} cannot be read: {error.message}.") from error


def read_examples(path: str) -> Iterator[bytes]:
    """Yields the payloads of all records of a TFRecord file, in bounded memory.

    Raises:
      AlbertError: as `read_frames`; or a record is faulty, see `record_error`.
    """
    for number, frame in enumerate(read_frames(path)):
        if frame.fault:
            raise record_error(path, number, *frame[::2])
        yield frame.example


def record_error(path: str, number: int, byte: int, fault: str) -> AlbertError:
    """Returns the error for a faulty record: its number in the file, from 0, and its first byte."""
    return AlbertError(
        f"{path}: record {number} (byte {byte}): {fault}; build it again, which gives the same "
        "bytes, or copy it again."
    )


def _bounds(block: bytes) -> list[int]:
    """Returns where the records begin that a block holds completely, and where the last one ends.

    Follows their lengths from the beginning of the block.
    """
    bounds = [0]
    while (end := _end(block, bounds[-1])) <= len(block):
        bounds.append(end)
    return bounds


def _end(block: bytes, begin: int) -> int:
    """Returns where the record ends that begins in the block, as its length says."""
    return begin + FRAME_BYTES + int.from_bytes(block[begin : begin + _LENGTH_BYTES], "little")
