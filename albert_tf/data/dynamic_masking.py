# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Masking and sentence order drawn while training, from compact records.

The distribution is that of the record builder (data_prep/masking.py): every word, in random order,
is the start of a span; see there. Here all of it is TensorFlow operations on a whole batch. The
words of all sequences lie in one list, with [CLS] and [SEP] as words that cannot be chosen, and
the loop goes over the turns of all sequences at once. Numbers are chosen by products with 0 and 1
where it counts, as tf.where takes several times as long.

Source: google-research/albert create_pretraining_data.create_masked_lm_predictions; paper, section
4.1. Masks that change with every epoch: Liu et al. 2019 (RoBERTa), section 4.1.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.masking_options import KEEP_SHARE, MASK_SHARE, MaskingOptions

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

#: Streams of random numbers; the turns of the drawing take those from the last one on.
_SWAP, _REPLACEMENT, _RANDOM_ID, _TURN = range(16, 20)
#: Numbers that the generator makes at a time. Rows of a table are multiples of it.
_BLOCK = 4
#: What became of a word: not drawn yet, drawn in vain, chosen; or it is no word.
_NEW, _DRAWN, _CHOSEN, _SPECIAL = np.arange(4, dtype=np.uint8)


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
        in_second = tf.cast(column > separator, tf.int32)
        is_text = (column > 0) & (column < last) & (column != separator)
        text = tf.cast(is_text, tf.int32)
        # Where the segments begin in the flattened texts, seen from the first column.
        row = self._length * tf.range(numbers.rows)[:, None]
        to_first = row - 1 + tf.where(swapped, a, 0)
        to_second = row - 1 + tf.where(swapped, 0, a) - separator
        place = text * (column + to_first + in_second * (to_second - to_first))
        ids = text * tf.cast(tf.gather(tf.reshape(columns["text_ids"], [-1]), place), tf.int32)
        is_separator = tf.cast((column == separator) | (column == last), tf.int32)
        ids += tf.one_hot(0, self._length, self._tokenizer.cls_id, 0)
        ids += self._tokenizer.sep_id * is_separator
        starts = is_text
        if self.options.whole_words:
            stored = tf.gather(self._unpack(columns["word_starts"]), place)
            # A segment may begin inside a word; what is left of it counts as one.
            starts &= stored | (column == 1) | (column == separator + 1)
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
        column = tf.range(self._length)
        special = (column == 0) | (column == sequences.separator) | (column == sequences.last)
        listed = sequences.starts | special
        bounds = tf.cast(tf.where(tf.reshape(listed, [-1]))[:, 0], tf.int32)
        is_special = tf.gather(tf.reshape(special, [-1]), bounds)
        in_row, of_text = (
            tf.reduce_sum(tf.cast(x, tf.int32), 1) for x in (listed, sequences.starts)
        )
        ngram = self.options.ngram
        words = _Words(
            first=tf.cumsum(in_row, exclusive=True) + 1,
            count=in_row - 2,
            of_text=of_text,
            states=tf.pad(_SPECIAL * tf.cast(is_special, tf.uint8), [[0, ngram]]),
            bounds=tf.pad(bounds, [[0, ngram + 1]]),
        )
        budgets = tf.constant(self.options.budgets(np.arange(self._length + 1)))
        budget = tf.gather(budgets, sequences.last[:, 0] + 1)
        chosen, room = self._take_turns(words, budget, numbers)
        chosen = tf.cast(tf.where(chosen)[:, 0], tf.int32)
        places = tf.raw_ops.RaggedRange(
            starts=tf.gather(words.bounds, chosen),
            limits=tf.gather(words.bounds, chosen + 1),
            deltas=1,
            Tsplits=tf.int32,
        )
        return places.rt_dense_values, budget - room

    def _take_turns(
        self, words: _Words, budget: tf.Tensor, numbers: RowNumbers
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws spans, one a turn in each sequence, until the budgets are used or words run out.

        A turn draws any word; one that was drawn or chosen before makes the turn void. That gives
        the words in random order without having to sort them.

        Args:
          words: of n sequences.
          budget: int32 [n]: tokens to choose.
          numbers: for the n sequences.

        Returns:
          bool [total]: the words chosen; int32 [n]: what is left of the budgets.
        """
        thresholds = [0, *self.options.span_thresholds()[:-1].tolist()]
        ngram = self.options.ngram
        nowhere = tf.size(words.states) - ngram
        count = tf.cast(words.count, tf.float32)

        # Vectors [n] only: on matrices as narrow as [n, ngram] TensorFlow takes much longer.
        def take_turn(
            turn: tf.Tensor, room: tf.Tensor, left: tf.Tensor, states: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            drawn, length = tf.unstack(numbers.uniform(_TURN + turn, 2), axis=1)
            offset = tf.minimum(tf.cast(drawn * count, tf.int32), words.count - 1)
            span = [words.first + offset + k for k in range(ngram)]
            bounds = [tf.gather(words.bounds, word) for word in (*span, span[-1] + 1)]
            sizes = [bound - bounds[0] for bound in bounds[1:]]
            before = [tf.gather(states, word) for word in span]
            # The words of the span, less those at its end that do not fit.
            within = itertools.accumulate((s != _SPECIAL for s in before), tf.logical_and)
            fits = [
                inside & (length >= t) & (size <= room)
                for inside, t, size in zip(within, thresholds, sizes)
            ]
            is_new = before[0] == _NEW
            meets = [fit & (state == _CHOSEN) for fit, state in zip(fits, before)]
            is_free = is_new & ~functools.reduce(tf.logical_or, meets)
            chosen = [fit & is_free for fit in fits]
            changed = [is_new, *chosen[1:]]
            is_changed = tf.cast(tf.concat(changed, 0), tf.int32)
            where = nowhere + is_changed * (tf.concat(span, 0) - nowhere)
            what = _DRAWN + tf.cast(tf.concat(chosen, 0), tf.uint8)
            states = tf.tensor_scatter_nd_update(states, where[:, None], what)
            for k in range(ngram):
                # Of a chosen span the last size counts, which is the sum of the differences.
                shorter = sizes[k - 1] if k else 0
                room -= tf.cast(chosen[k], tf.int32) * (sizes[k] - shorter)
                left -= tf.cast(changed[k] & (before[k] == _NEW), tf.int32)
            return turn + 1, room, left, states

        _, room, _, states = tf.while_loop(
            lambda turn, room, left, states: tf.reduce_any((room > 0) & (left > 0)),
            take_turn,
            (tf.constant(0), budget, words.of_text, words.states),
            parallel_iterations=1,
        )
        return states[:-ngram] == _CHOSEN, room

    def _replace(
        self, sequences: _Sequences, places: tf.Tensor, counts: tf.Tensor, numbers: RowNumbers
    ) -> dict[str, tf.Tensor]:
        """Replaces the tokens at flat places and lists them by sequence."""
        width = self.options.max_predictions_per_seq
        ids = tf.reshape(sequences.ids, [-1])
        rows = tf.RaggedTensor.from_row_lengths(places, counts, validate=False)
        listed = rows.to_tensor(shape=[numbers.rows, width])
        used = tf.range(width) < counts[:, None]
        in_use = tf.cast(used, tf.int32)
        labels = in_use * tf.gather(ids, listed)
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
            "masked_lm_positions": in_use * (listed % self._length),
            "masked_lm_ids": labels,
            "masked_lm_weights": tf.cast(used, tf.float32),
        }


@dataclasses.dataclass(frozen=True)
class _Words:
    """The words of n sequences in one list of `total`, with [CLS] and [SEP].

    Attributes:
      first: int32 [n]: number of the first word after [CLS].
      count: int32 [n]: words from there to the last [SEP], the [SEP] between them counted.
      of_text: int32 [n]: the same without that [SEP].
      states: uint8 [total + ngram]: _SPECIAL for [CLS] and [SEP], else _NEW.
      bounds: int32 [total + ngram + 1]: word w takes the flat places [bounds[w], bounds[w + 1]).
        As with the states, what is after the last [SEP] only lets one look past the end.
    """

    first: tf.Tensor
    count: tf.Tensor
    of_text: tf.Tensor
    states: tf.Tensor
    bounds: tf.Tensor
