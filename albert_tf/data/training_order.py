# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The training order: an endless stream of records that can be read from any position.

Shards are dealt to lanes, and each lane yields the same rows of every global batch. A pipeline
opens only the shards of the lanes that its rows come from. The lanes depend on the shards and the
batch size, not on the number of pipelines.

The order of a lane is a pure function of (seed, lane, epoch). An epoch consists of rounds. A round
visits one section of each shard in random order, interleaves several of them, and shuffles windows
of consecutive records. A section is one pass over the text of its shard, so each round sees all of
the text once.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.sections import Sections

#: Number of records shuffled together, over all lanes. Builders shuffle within shards already;
#: 16384 records of length 512 take about 50 MB, twice, as the next windows are read ahead.
SHUFFLE_WINDOW = 16384
#: Sections interleaved, over all lanes. Neighbours in a section often come from the same text.
_INTERLEAVED_SECTIONS = 16
MAX_LANES = 16
#: Maximum number of windows in a round; keeps the random numbers of different rounds apart.
_MAX_WINDOWS = 1 << 32
#: Maximum ratio of the sizes of the largest and the smallest lane. All lanes are read at the same
#: rate, so this limits how much more often one record is seen than another.
MAX_IMBALANCE = 1.05


def deal(examples: Sequence[int], batch_size: int, max_lanes: int = MAX_LANES) -> np.ndarray:
    """Deals shards to as many lanes as possible that divide the batch and have similar sizes.

    Args:
      examples: number of records of each shard.
      batch_size: rows of a global batch.
      max_lanes: maximum number of lanes.

    Returns:
      The lane of each shard, int64 [shards], numbered from 0.
    """
    largest_first = np.argsort(-np.asarray(examples, np.int64), kind="stable").tolist()
    for lanes in range(min(max_lanes, len(examples)), 1, -1):
        if batch_size % lanes:
            continue
        lane_of = np.zeros(len(examples), np.int64)
        sizes = [(0, lane) for lane in range(lanes)]
        for shard in largest_first:
            size, lane_of[shard] = sizes[0]
            heapq.heapreplace(sizes, (size + int(examples[shard]), int(lane_of[shard])))
        if max(sizes)[0] <= MAX_IMBALANCE * min(sizes)[0]:
            return lane_of
    return np.zeros(len(examples), np.int64)


def order_fingerprint(sections: Sections) -> str:
    """Returns an identifier of the order of sections, except for the seed and the batch size."""
    layout = repr((sections.shards.tolist(), sections.examples.tolist()))
    return hashlib.sha256(layout.encode()).hexdigest()[:16]


class TrainingOrder:
    """The endless training order of the records of some shards.

    Args:
      sections: of the shards.
      batch_size: rows of a global batch.
      seed: of all random choices.
      window: number of records shuffled together, over all lanes.
      max_lanes: maximum number of lanes.

    Attributes:
      lanes: number of lanes.
    """

    def __init__(
        self,
        sections: Sections,
        batch_size: int,
        seed: int,
        window: int = SHUFFLE_WINDOW,
        max_lanes: int = MAX_LANES,
    ) -> None:
        examples = np.bincount(sections.shards, sections.examples).astype(np.int64)
        lane_of = deal(examples, batch_size, max_lanes)
        self.lanes = int(lane_of.max()) + 1
        self._sections, self._seed = sections, seed
        self._lane_rows = batch_size // self.lanes
        self._lane_examples = np.bincount(lane_of, examples).astype(np.int64)
        self._window = max(1, window // self.lanes)
        # A round reads groups of interleaved sections, of similar sizes, so that the last group is
        # not left with a few sections.
        most_shards = int(np.bincount(lane_of).max())
        self._groups = -(-most_shards // max(1, _INTERLEAVED_SECTIONS // self.lanes))
        self._width = -(-most_shards // self._groups)
        # The sections of each lane's shards, int64 [lanes, shards, rounds], padded with empty
        # sections.
        self._rounds = int(np.bincount(sections.shards).max())
        shape = self.lanes, self._groups * self._width, self._rounds
        self._examples = np.append(sections.examples, 0)
        self._slots = np.full(shape, len(sections), np.int64)
        begins = np.searchsorted(sections.shards, np.arange(len(lane_of) + 1))
        for lane, slots in enumerate(self._slots):
            for row, shard in enumerate(np.flatnonzero(lane_of == lane)):
                own = np.arange(begins[shard], begins[shard + 1])
                slots[row, : len(own)] = own

    def batches(self, begin: int, rows: int, start: int = 0) -> tf.data.Dataset:
        """Returns one pipeline's rows of the endless global batches.

        Args:
          begin: the first row.
          rows: number of rows.
          start: number of the first batch.

        Returns:
          Serialized records, string [rows].
        """
        first = begin // self._lane_rows
        lanes = -(-(begin + rows) // self._lane_rows) - first

        def lane_rows(lane: tf.Tensor) -> tf.data.Dataset:
            windows = self.windows(lane, start * self._lane_rows)
            return windows.prefetch(1).rebatch(self._lane_rows)

        if self.lanes == 1:
            dataset = lane_rows(tf.constant(0, tf.int64))
        else:
            dataset = tf.data.Dataset.range(first, first + lanes)
            dataset = dataset.interleave(lane_rows, cycle_length=lanes).batch(lanes)
            dataset = dataset.map(lambda batch: tf.reshape(batch, [-1]))
        if rows < lanes * self._lane_rows:
            begin -= first * self._lane_rows
            dataset = dataset.map(lambda batch: batch[begin : begin + rows])
        return dataset

    def windows(self, lane: tf.Tensor, position: int) -> tf.data.Dataset:
        """Returns a lane's records from `position` on, as shuffled windows, string [<= window]."""
        epochs, offsets = np.divmod(position, self._lane_examples)
        epoch, offset = tf.gather(epochs, lane), tf.gather(offsets, lane)
        # The rounds of all epochs. Those of the first epoch that precede the position are empty.
        return tf.data.Dataset.range(epoch * self._rounds, tf.int64.max).flat_map(
            lambda number: self._round(
                lane,
                number // self._rounds,
                number % self._rounds,
                tf.where(number // self._rounds == epoch, offset, tf.zeros_like(offset)),
            )
        )

    def _round(
        self, lane: tf.Tensor, epoch: tf.Tensor, number: tf.Tensor, offset: tf.Tensor
    ) -> tf.data.Dataset:
        """Returns the shuffled windows of a round, without what precedes `offset` in the epoch."""
        # Not [seed, 1], which is that of batches by length.
        seed = tf.stack([tf.constant(self._seed, tf.int64), 2 * lane])
        key = tf.random.experimental.stateless_fold_in(seed, epoch)
        sections, before = self._sections_of_round(lane, key, number)
        examples = tf.gather(self._examples, sections)
        sizes = tf.reduce_sum(examples, 1)
        ends = tf.cumsum(sizes)
        offset = tf.clip_by_value(offset - before, 0, ends[-1])
        first_window = offset // self._window
        # The first window is read whole; nothing is read of a round before the offset.
        skipped = tf.where(offset < ends[-1], first_window * self._window, offset)
        skipped_groups = tf.cast(ends <= skipped, tf.int64)

        def read(group: tf.Tensor) -> tf.data.Dataset:
            if self._width == 1:
                return self._sections.read(tf.gather(sections, group)[0])
            numbers = tf.data.Dataset.from_tensor_slices(tf.gather(sections, group))
            return numbers.interleave(self._sections.read, cycle_length=self._width)

        def shuffle(window: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
            stream = number * _MAX_WINDOWS + window + 1
            window_key = tf.random.experimental.stateless_fold_in(key, stream)
            shuffled = tf.random.experimental.stateless_shuffle(records, window_key)
            return shuffled[tf.where(window == first_window, offset - skipped, 0) :]

        dataset = tf.data.Dataset.range(tf.reduce_sum(skipped_groups), self._groups).flat_map(read)
        dataset = dataset.skip(skipped - tf.reduce_sum(skipped_groups * sizes))
        return dataset.batch(self._window).enumerate(first_window).map(shuffle)

    def _sections_of_round(
        self, lane: tf.Tensor, key: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a round's sections, int64 [groups, width], and the size of the rounds before."""
        slots = tf.gather(self._slots, lane)
        if self._rounds > 1:
            # The sections of a shard (row) in random order.
            drawn = tf.random.stateless_uniform(slots.shape, key)
            order = tf.math.top_k(drawn, self._rounds).indices
            slots = tf.gather(slots, order, batch_dims=1)
        sizes = tf.reduce_sum(tf.gather(self._examples, slots), 0)
        before = tf.reduce_sum(tf.where(tf.range(self._rounds, dtype=tf.int64) < number, sizes, 0))
        round_key = tf.random.experimental.stateless_fold_in(key, -1 - number)
        sections = tf.gather(slots, number, axis=1)
        sections = tf.random.experimental.stateless_shuffle(sections, round_key)
        return tf.reshape(sections, [self._groups, self._width]), before
