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

from albert_tf.data.corrupt_records import RepairedShard
from albert_tf.data.framing import READ_BYTES, checked_offset, read_piece, read_pieces
from albert_tf.data.records import Section, ShardInfo


@dataclasses.dataclass(frozen=True)
class Sections:
    """All sections of some shards, in file order.

    Attributes:
      paths: of the shards.
      shards: int64 [sections]: index of the section's shard.
      examples: int64 [sections]: number of records.
      pieces: int64 [sections + 1]: section i is read as the pieces pieces[i] to pieces[i + 1] - 1.
        An intact section is one piece.
      offsets: int64 [pieces]: byte at which each piece begins.
      counts: int64 [pieces]: number of records.
      buffers: int64 [pieces]: size of the reads in bytes.
    """

    paths: Sequence[str]
    shards: np.ndarray
    examples: np.ndarray
    pieces: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    buffers: np.ndarray

    @classmethod
    def of(
        cls, paths: Sequence[str], infos: Sequence[ShardInfo], repaired: Sequence[RepairedShard]
    ) -> Sections:
        """Returns the sections of shards.

        Args:
          paths: of the shards.
          infos: descriptions of the shards.
          repaired: how to read the shards if records are corrupt; empty if none are.
        """
        listed = [info.sections or (Section(info.examples, info.bytes),) for info in infos]
        shards = np.repeat(np.arange(len(paths)), [len(sections) for sections in listed])
        examples = _join([section.examples for section in sections] for sections in listed)
        if repaired:
            offsets = _join(shard.offsets for shard in repaired)
            counts = _join(shard.counts for shard in repaired)
            buffers = np.full(len(offsets), READ_BYTES)
            # A piece never goes beyond the end of a section.
            pieces = np.searchsorted(_starts(counts), _starts(examples))
        else:
            sizes = [np.array([section.bytes for section in sections]) for sections in listed]
            offsets = _join(map(_starts, sizes))
            counts = examples
            buffers = np.array([_buffer(size) for size in _join(sizes)])
            pieces = np.arange(len(examples))
        pieces = np.append(pieces, len(offsets))
        return cls(list(paths), shards, examples, pieces, offsets, counts, buffers)

    def __len__(self) -> int:
        return len(self.examples)

    def read(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the records of section `number`, string scalars; none if it is len(self)."""
        path = tf.gather(self.paths, tf.gather(np.append(self.shards, 0), number))
        if (np.diff(self.pieces) == 1).all():
            offset = tf.gather(np.append(self.offsets, 0), number)
            count = tf.gather(np.append(self.counts, 0), number)
            # The lengths of repaired sections were checked when they were scanned.
            offset = checked_offset(path, offset, count)
            return read_piece(path, offset, count, tf.gather(np.append(self.buffers, 1), number))
        bounds = np.append(self.pieces, self.pieces[-1])
        pieces = tf.range(tf.gather(bounds, number), tf.gather(bounds, number + 1))
        return read_pieces(path, tf.gather(self.offsets, pieces), tf.gather(self.counts, pieces))


def _buffer(size: int) -> int:
    """Returns a size of reads such that little is read beyond the end of a section."""
    return -(-size // max(1, -(-size // READ_BYTES))) or 1


def _join(arrays: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(array, np.int64) for array in arrays])


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Returns where each of the consecutive runs of these sizes starts."""
    return np.cumsum(sizes) - sizes
