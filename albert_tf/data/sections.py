# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections of record shards: the runs of records that the training order visits one by one.

A section is one pass over a shard's text, or the whole shard if the manifest lists no sections. It
is read from its byte offset, without reading what precedes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.framing import READ_BYTES, read_piece
from albert_tf.data.records import Section, ShardInfo


@dataclasses.dataclass(frozen=True)
class Sections:
    """All sections of some shards, in file order.

    Attributes:
      paths: of the shards.
      shards: int64 [sections]: index of the section's shard.
      examples: int64 [sections]: number of records.
      offsets: int64 [sections]: byte at which each begins.
      buffers: int64 [sections]: size of the reads in bytes.
    """

    paths: Sequence[str]
    shards: np.ndarray
    examples: np.ndarray
    offsets: np.ndarray
    buffers: np.ndarray

    @classmethod
    def of(cls, paths: Sequence[str], infos: Sequence[ShardInfo]) -> Sections:
        """Returns the sections of shards, which the infos describe."""
        listed = [info.sections or (Section(info.examples, info.bytes),) for info in infos]
        shards = np.repeat(np.arange(len(paths)), [len(sections) for sections in listed])
        examples = _join([section.examples for section in sections] for sections in listed)
        sizes = [np.array([section.bytes for section in sections]) for sections in listed]
        offsets = _join(np.cumsum(size) - size for size in sizes)
        buffers = np.array([_buffer(size) for size in _join(sizes)])
        return cls(list(paths), shards, examples, offsets, buffers)

    def __len__(self) -> int:
        return len(self.examples)

    def read(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the records of section `number`, string scalars; none if it is len(self)."""
        path = tf.gather(self.paths, tf.gather(np.append(self.shards, 0), number))
        offset, count, buffer = (
            tf.gather(np.append(column, 0), number)
            for column in (self.offsets, self.examples, self.buffers)
        )
        return read_piece(path, offset, count, tf.maximum(buffer, 1))


def _buffer(size: int) -> int:
    """Returns a size of reads such that little is read beyond the end of a section."""
    return -(-size // max(1, -(-size // READ_BYTES))) or 1


def _join(arrays: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(array, np.int64) for array in arrays])
