# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The training order: an endless stream of records that can be read from any position.

The unit of reading is a block of consecutive records. An epoch is one pass over the text of all
shards: it visits the blocks of that pass in random order, and shuffles the records
of a buffer of blocks. So each epoch sees all of the text once.

The blocks are divided among readers. Each reader has its own epochs, and yields the same rows of
every global batch. A pipeline reads only the blocks of the readers that its rows come from. The
readers depend on the shards and on the batch size, not on the number of pipelines.

What a buffer holds is a pure function of (seed, reader, number of the buffer).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.framing import check_lengths, read_consecutive

#: Blocks whose records are shuffled together, over all readers. 16,384 records of length 512 take
#: about 50 MB, twice, as the next buffers are read ahead.
SHUFFLED_BLOCKS = 16
MAX_READERS = 16
#: Maximum ratio of the numbers of records of two readers. All are read at the same rate, so this
#: limits how much more often one record is seen than another.
MAX_IMBALANCE = 1.05
#: Largest size of a read in bytes.
_READ_BYTES = 1 << 20

#: The arguments of `read_blocks`.
Reads = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Blocks:
    """All blocks of some shards, in file order.

    Attributes:
      paths: of the shards.
      shards: int64 [blocks]: index of the block's shard.
      passes: int64 [blocks]: number of the block's pass within its shard.
      examples: int64 [blocks]: number of records.
      offsets: int64 [blocks]: byte at which the first record begins.
      sizes: int64 [blocks]: bytes.
    """

    paths: Sequence[str]
    shards: np.ndarray
    passes: np.ndarray
    examples: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray

    @classmethod
    def from_infos(cls, paths: Sequence[str], infos: Sequence[records.ShardInfo]) -> Blocks:
        """Returns the blocks of the shards that `infos` describe."""
        rows = []
        for shard, info in enumerate(infos):
            passes, examples, sizes = np.array(info.blocks, np.int64).reshape(-1, 3).T
            offsets = np.cumsum(sizes) - sizes
            rows.append(np.stack([np.full_like(sizes, shard), passes, examples, offsets, sizes]))
        return cls(list(paths), *np.concatenate(rows, axis=1))

    def __len__(self) -> int:
        return len(self.examples)

    def read(self, numbers: np.ndarray) -> Reads:
        """Returns how to read some blocks, int64 [n]."""
        paths = np.array([path.encode() for path in self.paths], object)[self.shards[numbers]]
        return paths, self.offsets[numbers], self.sizes[numbers], self.examples[numbers]


def read_blocks(reads: Reads | Sequence[tf.Tensor]) -> tf.data.Dataset:
    """Returns the records of n blocks one after the other, string scalars.

    `reads` are paths, string [n], and int64 [n] the bytes at which the blocks begin, their sizes in
    bytes, and their numbers of records.
    """

    def read(
        path: tf.Tensor, offset: tf.Tensor, size: tf.Tensor, count: tf.Tensor
    ) -> tf.data.Dataset:
        size = tf.numpy_function(check_lengths, [path, offset, size], tf.int64)
        # Buffers of equal size, so that little is read beyond the end of the block.
        return read_consecutive(path, offset, count, -(-size // -(-size // _READ_BYTES)))

    return tf.data.Dataset.from_tensor_slices(tuple(reads)).flat_map(read)


def divide(blocks: Blocks, batch_size: int) -> list[list[np.ndarray]]:
    """Divides blocks among as many readers as possible that divide the batch and are balanced.

    Returns:
      The numbers of each reader's blocks, int64, for each epoch of a cycle. A shard with fewer
      passes than others begins again, so that each epoch holds one pass of every shard.
    """
    passes = np.zeros(len(blocks.paths), np.int64)
    np.maximum.at(passes, blocks.shards, blocks.passes + 1)
    most = int(passes.max())
    epochs = [
        np.flatnonzero(blocks.passes == epoch * passes[blocks.shards] // most)
        for epoch in range(most)
    ]
    largest_first = [e[np.argsort(-blocks.examples[e], kind="stable")] for e in epochs]
    for readers in range(MAX_READERS, 1, -1):
        if batch_size % readers:
            continue
        parts = [[epoch[reader::readers] for epoch in largest_first] for reader in range(readers)]
        sizes = [sum(int(blocks.examples[own].sum()) for own in part) for part in parts]
        if 0 < max(sizes) <= MAX_IMBALANCE * min(sizes):
            return parts
    return [epochs]


class _Reader:
    """The endless order of a reader's blocks and records.

    It has the numbers of its blocks for each epoch of a cycle, the number of records of each block
    of the shards, and the `width` of a buffer in blocks.
    """

    def __init__(
        self,
        epochs: Sequence[np.ndarray],
        examples: np.ndarray,
        seed: int,
        number: int,
        width: int,
    ) -> None:
        self._epochs, self._examples, self._width = epochs, examples, width
        # A seed sequence takes no negative numbers.
        self._seed = [seed % (1 << 64), number]
        buffers = [-(-len(blocks) // width) for blocks in epochs]
        self._first_buffers = np.cumsum([0, *buffers])
        self._first_examples = np.cumsum([0, *(examples[blocks].sum() for blocks in epochs)])

    def _order(self, epoch: int) -> np.ndarray:
        """Returns the blocks of an epoch in random order."""
        rng = np.random.default_rng([*self._seed, epoch])
        return rng.permutation(self._epochs[epoch % len(self._epochs)])

    def buffer(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the blocks of a buffer, and the order in which to yield their records."""
        cycle, number_in_cycle = divmod(int(number), int(self._first_buffers[-1]))
        index = np.searchsorted(self._first_buffers, number_in_cycle, "right") - 1
        begin = (number_in_cycle - self._first_buffers[index]) * self._width
        order = self._order(cycle * len(self._epochs) + int(index))
        blocks = order[begin : begin + self._width]
        # The 0 separates these random numbers from those of the epochs.
        rng = np.random.default_rng([*self._seed, int(number), 0])
        return blocks, rng.permutation(int(self._examples[blocks].sum()))

    def locate(self, position: int) -> tuple[int, int]:
        """Returns the buffer that holds the record at `position`, and its place there."""
        cycle, position = divmod(position, int(self._first_examples[-1]))
        index = int(np.searchsorted(self._first_examples, position, "right")) - 1
        order = self._order(cycle * len(self._epochs) + index)
        examples = np.add.reduceat(self._examples[order], np.arange(0, len(order), self._width))
        position -= int(self._first_examples[index])
        ends = np.cumsum(examples)
        number = int(np.searchsorted(ends, position, "right"))
        first = cycle * int(self._first_buffers[-1]) + int(self._first_buffers[index])
        return first + number, position - int(ends[number] - examples[number])


class TrainingOrder:
    """The endless training order of the records of some shards, in global batches."""

    def __init__(self, blocks: Blocks, batch_size: int, seed: int) -> None:
        parts = divide(blocks, batch_size)
        width = max(1, SHUFFLED_BLOCKS // len(parts))
        self._blocks = blocks
        self._readers = [
            _Reader(epochs, blocks.examples, seed, number, width)
            for number, epochs in enumerate(parts)
        ]
        self._reader_rows = batch_size // len(parts)

    def _read_buffer(self, reader: np.int64, number: np.int64) -> tuple[np.ndarray, ...]:
        blocks, order = self._readers[reader].buffer(number)
        return *self._blocks.read(blocks), order

    def batches(self, begin: int, rows: int, start: int = 0) -> tf.data.Dataset:
        """Returns rows [begin, begin + rows) of the endless global batches from `start` on.

        These are serialized records, string [rows].
        """
        size = self._reader_rows
        own = range(begin // size, -(-(begin + rows) // size))
        places = np.array([reader.locate(start * size) for reader in self._readers], np.int64)

        def read_buffer(reader: tf.Tensor, number: tf.Tensor) -> tf.data.Dataset:
            types = tf.string, *[tf.int64] * 4
            *reads, order = (
                tf.ensure_shape(column, [None])
                for column in tf.numpy_function(self._read_buffer, [reader, number], types)
            )
            first, skipped = tf.unstack(tf.gather(places, reader))
            order = order[tf.where(number == first, skipped, 0) :]
            examples = read_blocks(reads).batch(SHUFFLED_BLOCKS * records.BLOCK_EXAMPLES)
            return examples.map(lambda examples: tf.gather(examples, order))

        def reader_rows(reader: tf.Tensor) -> tf.data.Dataset:
            numbers = tf.data.Dataset.range(tf.gather(places[:, 0], reader), tf.int64.max)
            buffers = numbers.flat_map(lambda number: read_buffer(reader, number))
            return buffers.prefetch(1).rebatch(size)

        readers = tf.data.Dataset.range(own.start, own.stop)
        dataset = readers.interleave(reader_rows, cycle_length=len(own)).batch(len(own))
        begin -= own.start * size
        return dataset.map(lambda batch: tf.reshape(batch, [-1])[begin : begin + rows])
