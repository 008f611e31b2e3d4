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
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.record_files import check_lengths, read_consecutive

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

    def read(path, offset, size, count) -> tf.data.Dataset:
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


class TrainingOrder:
    """The endless training order of the records of some shards, in global batches.

    `readers` are the readers' blocks; see `divide`.
    """

    def __init__(self, blocks: Blocks, batch_size: int, seed: int) -> None:
        self.readers = divide(blocks, batch_size)
        self._blocks = blocks
        self._seed = seed % (1 << 64)  # A seed sequence takes no negative numbers.
        self._reader_rows = batch_size // len(self.readers)

    def buffers(self, reader: int, position: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the buffers of a reader, without end, from its record at `position` on.

        A buffer is the numbers of its blocks, and the order in which to yield their records.
        """
        epochs, examples = self.readers[reader], self._blocks.examples
        width = max(1, SHUFFLED_BLOCKS // len(self.readers))
        cycle, position = divmod(position, sum(int(examples[own].sum()) for own in epochs))
        number = cycle * sum(-(-len(own) // width) for own in epochs)
        for epoch in itertools.count(cycle * len(epochs)):
            rng = np.random.default_rng([self._seed, reader, epoch])
            order = rng.permutation(epochs[epoch % len(epochs)])
            for begin in range(0, len(order), width):
                chosen = order[begin : begin + width]
                size = int(examples[chosen].sum())
                if position < size:
                    # The 0 separates these random numbers from those of the epochs.
                    rng = np.random.default_rng([self._seed, reader, number, 0])
                    yield chosen, rng.permutation(size)[position:]
                position = max(0, position - size)
                number += 1

    def batches(self, begin: int, rows: int, start: int = 0) -> tf.data.Dataset:
        """Returns rows [begin, begin + rows) of the endless global batches from `start` on.

        These are serialized records, string [rows].
        """
        size = self._reader_rows
        own = range(begin // size, -(-(begin + rows) // size))
        types = tf.string, *[tf.int64] * 4
        signature = tuple(tf.TensorSpec([None], dtype) for dtype in types)

        def buffers(reader) -> Iterator[tuple[np.ndarray, ...]]:
            for blocks, order in self.buffers(int(reader), start * size):
                yield *self._blocks.read(blocks), order

        def read_buffer(*buffer) -> tf.data.Dataset:
            *reads, order = buffer
            examples = read_blocks(reads).batch(SHUFFLED_BLOCKS * records.BLOCK_EXAMPLES)
            return examples.map(lambda examples: tf.gather(examples, order))

        def reader_rows(reader) -> tf.data.Dataset:
            dataset = tf.data.Dataset.from_generator(
                buffers, args=(reader,), output_signature=signature
            )
            return dataset.flat_map(read_buffer).prefetch(1).rebatch(size)

        readers = tf.data.Dataset.range(own.start, own.stop)
        dataset = readers.interleave(reader_rows, cycle_length=len(own)).batch(len(own))
        begin -= own.start * size
        return dataset.map(lambda batch: tf.reshape(batch, [-1])[begin : begin + rows])
