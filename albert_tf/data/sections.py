# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections of record shards: the runs of records that the training order visits one by one.

A section is one pass over a shard's text, or the whole shard where the manifest lists no sections.
It is read from its byte offset, so that nothing before it has to be read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.corrupt_records import RepairedShard
from albert_tf.data.framing import READ_BYTES, read_piece, read_pieces
from albert_tf.data.records import Section, ShardInfo


@dataclasses.dataclass(frozen=True)
class Sections:
    """All sections of some shards, in the order of the shards and of the records in them.

    Attributes:
      paths: of the shards.
      shards: int64 [sections]: the number of each section's shard.
      examples: int64 [sections]: its records.
      pieces: int64 [sections + 1]: section i is read as the pieces pieces[i] to pieces[i + 1] - 1.
        An intact section is one piece.
      offsets: int64 [pieces]: the byte at which each piece begins.
      counts: int64 [pieces]: its records.
      buffers: int64 [pieces]: bytes to read at a time.
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
        """The sections that `infos` describe.

        Args:
          paths: of the shards.
          infos: of the shards.
          repaired: how the shards are read, if records are corrupt; else empty.
        """
        listed = [info.sections or (Section(info.examples, info.bytes),) for info in infos]
        examples = [[section.examples for section in some] for some in listed]
        if repaired:
            offsets, counts = ([getattr(r, k) for r in repaired] for k in ("offsets", "counts"))
            buffers = [np.full(len(some), READ_BYTES) for some in offsets]
            # No piece goes beyond the end of a section.
            begins = _begins(_joined(counts)), _begins(_joined(examples))
            pieces = np.searchsorted(*(some[:-1] for some in begins))
        else:
            sizes = [[section.bytes for section in some] for some in listed]
            offsets, counts = [_begins(some)[:-1] for some in sizes], examples
            buffers = [[_buffer(size) for size in some] for some in sizes]
            pieces = np.arange(len(_joined(examples)))
        return cls(
            list(paths),
            np.repeat(np.arange(len(paths)), [len(some) for some in listed]),
            _joined(examples),
            np.append(pieces, len(_joined(offsets))),
            *map(_joined, (offsets, counts, buffers)),
        )

    def __len__(self) -> int:
        return len(self.examples)

    def read(self, number: tf.Tensor) -> tf.data.Dataset:
        """The records of the section of a number, string scalars; none if it is len(self)."""
        path = tf.gather(self.paths, tf.gather(np.append(self.shards, 0), number))
        if (np.diff(self.pieces) == 1).all():
            offset, count = (
                tf.gather(np.append(table, 0), number) for table in (self.offsets, self.counts)
            )
            return read_piece(path, offset, count, tf.gather(np.append(self.buffers, 1), number))
        pieces = np.append(self.pieces, self.pieces[-1])
        some = tf.range(tf.gather(pieces, number), tf.gather(pieces, number + 1))
        return read_pieces(path, tf.gather(self.offsets, some), tf.gather(self.counts, some))


def _buffer(size: int) -> int:
    """How much of a section to read at a time, so that little is read beyond its end."""
    return -(-size // max(1, -(-size // READ_BYTES))) or 1


def _joined(lists: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(some, np.int64) for some in lists])


def _begins(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """int64 [n + 1]: where each of n consecutive runs of these sizes begins, and the end."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])
