# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads TFRecord files, and names the first damaged record.

A record is framed by its length (uint64), a checksum of the length (uint32), and after the payload
a checksum of it (tensorflow/core/lib/io/record_writer.h). TensorFlow's reader checks both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage

#: What framing adds to each payload.
FRAME_BYTES = 16
#: Size of a read, and records read together.
_READ_BYTES, _BATCH = 4 << 20, 1000


def read_examples(path: str) -> Iterator[bytes]:
    """Yields the payloads of all records of a TFRecord file, in bounded memory.

    Raises:
      AlbertError: the file is missing or cannot be read, or a record is damaged; see
        `record_error`.
    """
    import tensorflow as tf

    files.check_file(path, "record file")
    number = byte = 0
    try:
        for example in chain.from_iterable(_batches(path)):
            yield example
            number, byte = number + 1, byte + FRAME_BYTES + len(example)
        # TensorFlow takes a few bytes at the end for the end.
        is_damaged = byte < storage.size(path)
    except tf.errors.DataLossError:
        is_damaged = True
    except tf.errors.OpError as error:
        raise AlbertError(f"The record file {path} cannot be read: {error.message}.") from error
    if is_damaged:
        raise record_error(path, number, byte, "the file is damaged or cut off")


def record_error(path: str, number: int, byte: int, fault: str) -> AlbertError:
    """Returns the error for a faulty record: its number in the file, from 0, and its first byte."""
    return AlbertError(
        f"{path}: record {number} (byte {byte}): {fault}; build it again, which gives the same "
        "bytes, or copy it again."
    )


def _batches(path: str) -> Iterator[np.ndarray]:
    """Yields batches of payloads; after the last intact record, TensorFlow's DataLossError."""
    import tensorflow as tf

    dataset, number = tf.data.TFRecordDataset(path, buffer_size=_READ_BYTES), 0
    try:
        for batch in dataset.batch(_BATCH).as_numpy_iterator():
            yield batch
            number += len(batch)
    except tf.errors.DataLossError:  # The records before the damaged one are lost with the batch.
        yield from dataset.skip(number).batch(1).as_numpy_iterator()
