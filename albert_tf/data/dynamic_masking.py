# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Masking and sentence order drawn while training, from compact records.

The distribution is that of the record builder (data_prep/masking.py): every word, in random order,
is the start of a span; see there. Here all of it is TensorFlow operations on a whole batch. The
words of all sequences lie in one list, with [CLS] and [SEP] as words that cannot be chosen, and
the loop goes over the turns of all sequences at once.

Source: google-research/albert create_pretraining_data.create_masked_lm_predictions; paper, section
4.1. Masks that change with every epoch: Liu et al. 2019 (RoBERTa), section 4.1.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.masking_options import KEEP_SHARE, MASK_SHARE, MaskingOptions

if TYPE_CHECKING:
    from albert_tf.tokenization import Tokenizer

#: Streams of random numbers; the turns of the drawing take those from the last one on.
_SWAP, _REPLACEMENT, _RANDOM_ID, _TURN = range(16, 20)
#: Numbers that the generator makes at a time. Rows of a table are multiples of it.
_BLOCK = 4


@dataclasses.dataclass(frozen=True)
class RowNumbers:
    """Random numbers for some rows of an endless table; a row's do not depend on which others.

    The generator (Philox) is a function of a counter, so any row can be made directly.

    Attributes:
      seed: of the table.
      first_row: int64 scalar.
      rows: how many rows from there on.
    """

    seed: int
    first_row: tf.Tensor
    rows: int

    def uniform(self, stream: tf.Tensor | int, width: int) -> tf.Tensor:
        """float32 [rows, width], uniform in [0, 1)."""
        return tf.raw_ops.StatelessRandomUniformV2(**self._place(stream, width))[:, :width]

    def integers(self, stream: tf.Tensor | int, width: int, bound: int) -> tf.Tensor:
        """int32 [rows, width], uniform in [0, bound)."""
        place = self._place(stream, width)
        return tf.raw_ops.StatelessRandomUniformIntV2(**place, minval=0, maxval=bound)[:, :width]

    def _place(self, stream: tf.Tensor | int, width: int) -> dict[str, object]:
        blocks = -(-width // _BLOCK)
        seed = tf.stack([tf.constant(self.seed, tf.int64), tf.cast(stream, tf.int64)])
        start = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        skipped = tf.cast(self.first_row * blocks, tf.uint64)
        return {
            "shape": [self.rows, blocks * _BLOCK],
            "key": start.key,
            "counter": start.counter + tf.stack([skipped, tf.constant(0, tf.uint64)]),
            "alg": 1,  # Philox on every kind of device.
        }


@dataclasses.dataclass(frozen=True)
class _Sequences:
    """n sequences ``[CLS] A [SEP] B [SEP]`` before masking.

    Attributes:
      ids: int32 [n, length], padded with 0.
      starts: bool [n, length]: a word of the text starts here.
      separator, last: int32 [n, 1]: positions of the first and the last [SEP]; the same one if
        there is one segment.
      swapped: bool [n, 1]: B stands before A.
    """

    ids: tf.Tensor
    starts: tf.Tensor
    separator: tf.Tensor
    last: tf.Tensor
    swapped: tf.Tensor


class DynamicMasking:
    """Makes pretraining batches of compact records.

    Args:
      features: layout of the records, `records.compact_features`.
      options: how words are chosen; `within_segments` and not `permute`.
      tokenizer: of the records.
      swap: whether half of the pairs of segments are swapped (sentence order prediction).

    Attributes:
      fingerprint: hex digest of all that decides the batches besides records and seed.
    """

    def __init__(
        self,
        features: records.Features,
        options: MaskingOptions,
        tokenizer: Tokenizer,
        swap: bool,
    ) -> None:
        self.features = features
        self.options = options
        self._length = features["text_ids"].shape[0]
        self._tokenizer = tokenizer
        self._swap = swap
        decisive = {**dataclasses.asdict(options), "swap": swap}
        text = json.dumps(decisive, sort_keys=True)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def draw(self, serialized: tf.Tensor, seed: int, first_row: tf.Tensor) -> dict[str, tf.Tensor]:
        """Lays out sequences and masks them.

        Args:
          serialized: string [n]: records; n is known when the graph is built.
          seed: of all random choices.
          first_row: int64 scalar: place of the first record in the stream of examples. What is
            drawn for a record depends on the seed and its place alone.

        Returns:
          Under the names of the models and records, [n, length] and [n, predictions]:
          `input_word_ids`, `input_mask`, `input_type_ids`, `masked_lm_positions`, `masked_lm_ids`
          int32, `masked_lm_weights` float32, and `next_sentence_labels` int32 [n].
        """
        columns = records.parse_columns(serialized, self.features)
        numbers = RowNumbers(seed, tf.cast(first_row, tf.int64), serialized.shape[0])
        sequences = self._lay_out(columns, numbers)
        flat_positions, counts = self._choose(sequences, numbers)
        column = tf.range(self._length)
        in_use = column <= sequences.last
        return {
            **self._replace(sequences, flat_positions, counts, numbers),
            "input_mask": tf.cast(in_use, tf.int32),
            "input_type_ids": tf.cast(in_use & (column > sequences.separator), tf.int32),
            "next_sentence_labels": tf.cast(sequences.swapped[:, 0], tf.int32),
        }

    def _lay_out(self, columns: Mapping[str, tf.Tensor], numbers: RowNumbers) -> _Sequences:
        """Puts the segments in their order, between [CLS] and [SEP]."""
        lengths = tf.cast(columns["segment_lengths"], tf.int32)
        a, b = lengths[:, :1], lengths[:, 1:]
        swapped = tf.fill([numbers.rows, 1], False)
        if self._swap:
            swapped = (numbers.uniform(_SWAP, 1) < 0.5) & (b > 0)
        first = tf.where(swapped, b, a)
        separator = first + 1
        last = tf.where(b > 0, a + b + 2, separator)
        column = tf.range(self._length)
        in_second = column > separator
        is_text = (column > 0) & (column < last) & (column != separator)
        # Where in the record's text the segments begin, seen from their first column.
        shift = tf.where(
            in_second, tf.where(swapped, 0, a) - separator - 1, tf.where(swapped, a, 0) - 1
        )
        place = tf.clip_by_value(column + shift, 0, self._length - 1)
        place += self._length * tf.range(numbers.rows)[:, None]
        ids = tf.gather(tf.reshape(columns["text_ids"], [-1]), place)
        special = tf.where(
            column == 0,
            self._tokenizer.cls_id,
            tf.where((column == separator) | (column == last), self._tokenizer.sep_id, 0),
        )
        starts = is_text
        if self.options.whole_words:
            stored = tf.gather(self._unpack(columns["word_starts"]), place)
            # A segment may begin inside a word; what is left of it counts as one.
            starts &= stored | (column == 1) | (column == separator + 1)
        ids = tf.where(is_text, tf.cast(ids, tf.int32), special)
        return _Sequences(ids, starts, separator, last, swapped)

    def _unpack(self, packed: tf.Tensor) -> tf.Tensor:
        """bool [n · length]: bits, the first of each byte being its highest."""
        bits = tf.constant([128, 64, 32, 16, 8, 4, 2, 1], tf.uint8)
        unpacked = tf.bitwise.bitwise_and(packed[:, :, None], bits) > 0
        rows = tf.reshape(unpacked, [-1, packed.shape[1] * 8])
        return tf.reshape(rows[:, : self._length], [-1])

    def _choose(self, sequences: _Sequences, numbers: RowNumbers) -> tuple[tf.Tensor, tf.Tensor]:
        """Chooses the tokens to predict.

        Returns:
          Their ascending places in the flattened sequences, int32 [m], and their numbers in each
          sequence, int32 [n].
        """
        ngram = self.options.ngram
        column = tf.range(self._length)
        special = (column == 0) | (column == sequences.separator) | (column == sequences.last)
        listed = sequences.starts | special
        # Word w of all takes the flat places [bounds[w], bounds[w + 1]). What is beyond the list
        # lets spans look past its end; the first of it is written to where nothing is to change.
        bounds = tf.cast(tf.where(tf.reshape(listed, [-1]))[:, 0], tf.int32)
        total = tf.size(bounds)
        unavailable = tf.gather(tf.reshape(special, [-1]), bounds)
        bounds = tf.pad(bounds, [[0, ngram + 1]], constant_values=numbers.rows * self._length)
        unavailable = tf.pad(unavailable, [[0, ngram + 1]])
        in_row = tf.reduce_sum(tf.cast(listed, tf.int32), 1)
        first_word = tf.cumsum(in_row, exclusive=True) + 1
        last_word = first_word + in_row - 2  # The last [SEP].
        in_first = tf.cast(sequences.starts & (column < sequences.separator), tf.int32)
        separator_word = first_word + tf.reduce_sum(in_first, 1)
        budgets = self.options.budgets(np.arange(self._length + 1))
        budget = tf.gather(tf.constant(budgets), sequences.last[:, 0] + 1)
        words = _Words(bounds, total, first_word, separator_word, last_word)
        chosen, room = self._take_turns(words, unavailable, budget, numbers)
        chosen = tf.cast(tf.where(chosen & ~unavailable[:total])[:, 0], tf.int32)
        places = tf.raw_ops.RaggedRange(
            starts=tf.gather(bounds, chosen),
            limits=tf.gather(bounds, chosen + 1),
            deltas=1,
            Tsplits=tf.int32,
        )
        return places.rt_dense_values, budget - room

    def _take_turns(
        self, words: _Words, unavailable: tf.Tensor, budget: tf.Tensor, numbers: RowNumbers
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws spans, one a turn in each sequence, until the budgets are used or words run out.

        Args:
          words: of n sequences.
          unavailable: bool [total + ngram + 1]: words that cannot be chosen.
          budget: int32 [n]: tokens to choose.
          numbers: for the n sequences.

        Returns:
          bool [total]: words chosen or unavailable; int32 [n]: what is left of the
          budgets.
        """
        ngram = self.options.ngram
        reach = tf.range(ngram)
        least = np.concatenate([[0], self.options.span_thresholds()[:-1]]).astype(np.float32)
        nowhere = words.total
        count = words.last_word - words.first_word

        def is_active(turn: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
            return (room > 0) & (turn < count)

        def take_turn(
            turn: tf.Tensor, room: tf.Tensor, order: tf.Tensor, taken: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            active = is_active(turn, room)
            drawn = numbers.uniform(_TURN + turn, 2)
            # The next word of a random order (Fisher and Yates): swap it with the one at `turn`.
            left = tf.maximum(count - turn, 1)
            offset = tf.cast(drawn[:, 0] * tf.cast(left, tf.float32), tf.int32)
            here = tf.where(active, words.first_word + turn, nowhere)
            there = tf.where(active, here + tf.minimum(offset, left - 1), nowhere)
            start = tf.gather(order, there)
            order = tf.tensor_scatter_nd_update(order, there[:, None], tf.gather(order, here))
            # The longest part of the span that ends before the [SEP] and fits into the budget.
            span = start[:, None] + reach
            sizes = tf.gather(words.bounds, span + 1) - tf.gather(words.bounds, start)[:, None]
            limit = tf.where(start < words.separator_word, words.separator_word, words.last_word)
            fits = (drawn[:, 1:] >= least) & (sizes <= room[:, None])
            fits &= (span < limit[:, None]) | (reach == 0)
            meets = tf.reduce_any(fits & tf.gather(taken, span), 1)
            accepted = fits & (active & ~meets)[:, None]
            where = tf.where(accepted, span, nowhere)
            taken = tf.tensor_scatter_nd_update(taken, where[:, :, None], tf.ones_like(fits))
            room -= tf.reduce_max(tf.where(accepted, sizes, 0), 1)
            return turn + 1, room, order, taken

        _, room, _, taken = tf.while_loop(
            lambda turn, room, order, taken: tf.reduce_any(is_active(turn, room)),
            take_turn,
            (tf.constant(0), budget, tf.range(words.total + 1), unavailable),
            parallel_iterations=1,
        )
        return taken[: words.total], room

    def _replace(
        self, sequences: _Sequences, places: tf.Tensor, counts: tf.Tensor, numbers: RowNumbers
    ) -> dict[str, tf.Tensor]:
        """Replaces the tokens at flat places and lists them by sequence."""
        width = self.options.max_predictions_per_seq
        ids = tf.reshape(sequences.ids, [-1])
        rows = tf.RaggedTensor.from_row_lengths(places, counts, validate=False)
        listed = rows.to_tensor(shape=[numbers.rows, width])
        used = tf.range(width) < counts[:, None]
        labels = tf.where(used, tf.gather(ids, listed), 0)
        draw = numbers.uniform(_REPLACEMENT, width)
        not_special = np.setdiff1d(
            np.arange(self._tokenizer.vocab_size, dtype=np.int32), self._tokenizer.special_ids
        )
        random = tf.gather(
            tf.constant(not_special), numbers.integers(_RANDOM_ID, width, len(not_special))
        )
        new = tf.where(draw < MASK_SHARE + KEEP_SHARE, labels, random)
        new = tf.where(draw < MASK_SHARE, self._tokenizer.mask_id, new)
        ids = tf.tensor_scatter_nd_update(ids, places[:, None], tf.boolean_mask(new, used))
        return {
            "input_word_ids": tf.reshape(ids, sequences.ids.shape),
            "masked_lm_positions": tf.where(used, listed % self._length, 0),
            "masked_lm_ids": labels,
            "masked_lm_weights": tf.cast(used, tf.float32),
        }


@dataclasses.dataclass(frozen=True)
class _Words:
    """The words of n sequences in one list of `total`, with [CLS] and [SEP].

    Attributes:
      bounds: int32 [total + more]: word w takes the flat places [bounds[w], bounds[w + 1]).
      total: int32 scalar.
      first_word, separator_word, last_word: int32 [n]: numbers of the first word after [CLS], of
        the first [SEP] and of the last [SEP].
    """

    bounds: tf.Tensor
    total: tf.Tensor
    first_word: tf.Tensor
    separator_word: tf.Tensor
    last_word: tf.Tensor
