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
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

#: What framing adds to each payload.
FRAME_BYTES = 16
#: Size of the reads of `read_frames`, and records read together.
_READ_BYTES, _BATCH = 4 << 20, 1000


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

    begin, end = int(offset), int(offset + size)
    try:
        *_, last = begin, *_ends(path.decode(), begin, end)
    except tf.errors.OpError:
        return size  # The reader will report it.
    if last != end:
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

    files.check_file(path, "record file")
    begin = 0
    try:
        size = storage.size(path)
        ends = _ends(path, begin, size)
        while bounds := list(islice(ends, _BATCH)):
            yield from _read(path, [begin, *bounds])
            begin = bounds[-1]
    except tf.errors.OpError as error:
        raise AlbertError(f"The record file {path} cannot be read: {error.message}.") from error
    if begin < size:
        yield Frame(begin, b"", "the file is cut off or damaged")


def read_examples(path: str) -> Iterator[bytes]:
    """Yields the payloads of all records of a TFRecord file, in bounded memory.

    Raises:
      AlbertError: as `read_frames`; or a record is faulty, see `record_error`.
    """
    for number, frame in enumerate(read_frames(path)):
        if frame.fault:
            raise record_error(path, number, frame.byte, frame.fault)
        yield frame.example


def record_error(path: str, number: int, byte: int, fault: str) -> AlbertError:
    """Returns the error for a faulty record: its number in the file, from 0, and its first byte."""
    return AlbertError(
        f"{path}: record {number} (byte {byte}): {fault}; build it again, which gives the same "
        "bytes, or copy it again."
    )


def _ends(path: str, begin: int, end: int) -> Iterator[int]:
    """Yields where records end, as their lengths say, between two bytes of a file."""
    import tensorflow as tf

    with tf.io.gfile.GFile(path, "rb") as f:
        while begin < end:
            f.seek(begin)
            begin += FRAME_BYTES + int.from_bytes(f.read(8), "little")
            if begin > end:
                return
            yield begin


def _read(path: str, bounds: list[int]) -> list[Frame]:
    """Reads the records between these bytes: together, or if one is damaged, half by half."""
    import tensorflow as tf

    count = len(bounds) - 1
    try:
        dataset = read_consecutive(path, bounds[0], count, _READ_BYTES).batch(count)
        return [*map(Frame, bounds, dataset.get_single_element().numpy().tolist())]
    except tf.errors.DataLossError:
        if count == 1:
            return [Frame(bounds[0], b"", "its checksum is wrong")]
        middle = count // 2
        return _read(path, bounds[: middle + 1]) + _read(path, bounds[middle:])
