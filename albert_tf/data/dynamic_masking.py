# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dynamic masking: masks and sentence orders of compact records, drawn while training.

The distribution is that of the record builder (data_prep/masking.py), where each word, in random
order, starts a span. Here TensorFlow operations do this for a whole batch: one list holds the words
of all sequences, with [CLS] and [SEP] as words that cannot be chosen, and a loop takes a turn in
all sequences at once. Where speed matters, values are selected by products with 0 and 1, as
tf.where takes several times as long.

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

#: Streams of random numbers; turn t draws from the stream _TURN + t.
_WINDOW, _SWAP, _REPLACEMENT, _RANDOM_ID, _TURN = range(15, 20)
#: Numbers per call of the generator. The width of a row in the table is a multiple of it.
_BLOCK = 4
#: States of a word: not drawn yet; drawn, but not chosen; chosen; [CLS] or [SEP].
_NEW, _DRAWN, _CHOSEN, _SPECIAL = np.arange(4, dtype=np.uint8)


@dataclasses.dataclass(frozen=True)
class RowNumbers:
    """Random numbers from consecutive rows of an endless table.

    The generator (Philox) is a function of a counter, so any row can be computed by itself.

    Attributes:
      seed: of the table.
      first_row: int64 scalar.
      rows: number of rows.
    """

    seed: int
    first_row: tf.Tensor
    rows: int

    def uniform(self, stream: tf.Tensor | int, width: int) -> tf.Tensor:
        """Returns float32 [rows, width], uniform in [0, 1)."""
        return tf.raw_ops.StatelessRandomUniformV2(**self._inputs(stream, width))[:, :width]

    def integers(self, stream: tf.Tensor | int, width: int, bound: int) -> tf.Tensor:
        """Returns int32 [rows, width], uniform in [0, bound)."""
        inputs = self._inputs(stream, width)
        return tf.raw_ops.StatelessRandomUniformIntV2(**inputs, minval=0, maxval=bound)[:, :width]

    def _inputs(self, stream: tf.Tensor | int, width: int) -> dict[str, object]:
        blocks = -(-width // _BLOCK)
        seed = tf.stack([tf.constant(self.seed, tf.int64), tf.cast(stream, tf.int64)])
        start = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        skipped = tf.cast(self.first_row * blocks, tf.uint64)
        return {
            "shape": [self.rows, blocks * _BLOCK],
            "key": start.key,
            "counter": start.counter + tf.stack([skipped, tf.constant(0, tf.uint64)]),
            "alg": 1,  # Philox, on all devices.
        }


@dataclasses.dataclass(frozen=True)
class _Sequences:
    """n sequences ``[CLS] A [SEP] B [SEP]`` before masking.

    Attributes:
      ids: int32 [n, length], padded with 0.
      starts: bool [n, length]: a word of the text starts here.
      separator, last: int32 [n, 1]: positions of the first and the last [SEP], equal if there is
        one segment.
      swapped: bool [n, 1]: whether the segments are in reverse order.
    """

    ids: tf.Tensor
    starts: tf.Tensor
    separator: tf.Tensor
    last: tf.Tensor
    swapped: tf.Tensor


@dataclasses.dataclass(frozen=True)
class _Words:
    """The words of n sequences in one list of `total`, including [CLS] and [SEP].

    Attributes:
      first: int32 [n]: index of the first word after [CLS].
      count: int32 [n]: number of words from there to the last [SEP], including a [SEP] in between.
      of_text: int32 [n]: the same without that [SEP].
      states: uint8 [total + ngram]: _SPECIAL for [CLS] and [SEP], otherwise _NEW.
      bounds: int32 [total + ngram + 1]: word w has the tokens [bounds[w], bounds[w + 1]) of the
        flattened sequences. Here and in `states`, padding lets spans reach beyond the last word.
    """

    first: tf.Tensor
    count: tf.Tensor
    of_text: tf.Tensor
    states: tf.Tensor
    bounds: tf.Tensor


class DynamicMasking:
    """Turns compact records into pretraining batches.

    Args:
      features: layout of the records, `records.compact_features`.
      options: how words are chosen, with `within_segments` and without `permute`.
      tokenizer: of the records.
      swap: whether to swap half of the pairs of segments (sentence order prediction).
      length: length of the sequences; None: that of the records. A shorter sequence is a random
        part of a record's text. If the record has two segments, they are the halves of that part:
        models learn context earlier from two segments (docs/results/tuning.md). The halves stay in
        order, because a split inside a sentence would give it away.
        `options.max_predictions_per_seq` shrinks in proportion.

    Attributes:
      length: of the sequences.
      is_part: whether sequences are parts of the records' text, without sentence order.
      options: for sequences of this length.
      fingerprint: hex digest of all that determines the batches besides records and seed.
    """

    def __init__(
        self,
        features: records.Features,
        options: MaskingOptions,
        tokenizer: Tokenizer,
        swap: bool,
        length: int | None = None,
    ) -> None:
        self.features = features
        self._stored_length = features["text_ids"].shape[0]
        self.length = length or self._stored_length
        identity = {**dataclasses.asdict(options), "swap": swap}
        self.is_part = self.length < self._stored_length
        if self.is_part:
            share = self.length / self._stored_length
            predictions = max(1, round(share * options.max_predictions_per_seq))
            options = dataclasses.replace(options, max_predictions_per_seq=predictions)
            # Runs of versions that made one segment of a part must not be resumed.
            identity.update(length=self.length, halves=True)
        self.options = options
        self._tokenizer = tokenizer
        self._swap = swap and not self.is_part
        text = json.dumps(identity, sort_keys=True)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def draw(self, serialized: tf.Tensor, seed: int, first_row: tf.Tensor) -> dict[str, tf.Tensor]:
        """Joins the segments of records and masks the sequences.

        Args:
          serialized: string [n]: records, n being static.
          seed: of all random choices.
          first_row: int64 scalar: position of the first record in the stream of examples. The
            choices for a record depend on the seed and its position alone.

        Returns:
          Tensors [n, length] and [n, predictions] by their names in models and records:
          `input_word_ids`, `input_mask`, `input_type_ids`, `masked_lm_positions`, `masked_lm_ids`
          int32, `masked_lm_weights` float32, and `next_sentence_labels` int32 [n].
        """
        columns = records.parse_columns(serialized, self.features)
        numbers = RowNumbers(seed, tf.cast(first_row, tf.int64), serialized.shape[0])
        sequences = self._lay_out(columns, numbers)
        indices, counts = self._choose(sequences, numbers)
        column = tf.range(self.length)
        in_use = column <= sequences.last
        return {
            **self._replace(sequences, indices, counts, numbers),
            "input_mask": tf.cast(in_use, tf.int32),
            "input_type_ids": tf.cast(in_use & (column > sequences.separator), tf.int32),
            "next_sentence_labels": tf.cast(sequences.swapped[:, 0], tf.int32),
        }

    def _lay_out(self, columns: Mapping[str, tf.Tensor], numbers: RowNumbers) -> _Sequences:
        """Joins the segments with [CLS] and [SEP], in a random order if `swap` is set."""
        a, b, skipped = self._shorten(tf.cast(columns["segment_lengths"], tf.int32), numbers)
        swapped = tf.fill([numbers.rows, 1], False)
        if self._swap:
            swapped = (numbers.uniform(_SWAP, 1) < 0.5) & (b > 0)
        first = tf.where(swapped, b, a)
        separator = first + 1
        last = tf.where(b > 0, a + b + 2, separator)
        column = tf.range(self.length)
        in_second = tf.cast(column > separator, tf.int32)
        is_text = (column > 0) & (column < last) & (column != separator)
        text = tf.cast(is_text, tf.int32)
        # Each token's index in the flattened texts: its column plus the offset of its segment.
        row = self._stored_length * tf.range(numbers.rows)[:, None] + skipped
        first_offset = row - 1 + tf.where(swapped, a, 0)
        second_offset = row - 1 + tf.where(swapped, 0, a) - separator
        index = text * (column + first_offset + in_second * (second_offset - first_offset))
        ids = text * tf.cast(tf.gather(tf.reshape(columns["text_ids"], [-1]), index), tf.int32)
        is_separator = tf.cast((column == separator) | (column == last), tf.int32)
        ids += tf.one_hot(0, self.length, self._tokenizer.cls_id, 0)
        ids += self._tokenizer.sep_id * is_separator
        starts = is_text
        if self.options.whole_words:
            stored = tf.gather(self._unpack(columns["word_starts"]), index)
            # A segment may begin inside a word; the rest of the word counts as one.
            starts &= stored | (column == 1) | (column == separator + 1)
        return _Sequences(ids, starts, separator, last, swapped)

    def _shorten(
        self, lengths: tf.Tensor, numbers: RowNumbers
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Chooses which part of the text to use.

        Args:
          lengths: int32 [n, 2]: tokens of the segments.
          numbers: for the n records.

        Returns:
          Tokens of the first and of the second segment, and tokens of the text before them, int32
          [n, 1] each.
        """
        a, b = lengths[:, :1], lengths[:, 1:]
        if not self.is_part:
            return a, b, tf.zeros_like(a)
        is_pair = b > 0
        kept = tf.minimum(a + b, self.length - tf.where(is_pair, 3, 2))
        places = tf.cast(a + b - kept + 1, tf.float32)
        skipped = tf.cast(numbers.uniform(_WINDOW, 1) * places, tf.int32)
        second = tf.where(is_pair, kept // 2, 0)
        return kept - second, second, skipped

    def _unpack(self, packed: tf.Tensor) -> tf.Tensor:
        """Unpacks bits, the highest of each byte first, to bool [n · stored length]."""
        bits = tf.constant([128, 64, 32, 16, 8, 4, 2, 1], tf.uint8)
        unpacked = tf.bitwise.bitwise_and(packed[:, :, None], bits) > 0
        rows = tf.reshape(unpacked, [-1, packed.shape[1] * 8])
        return tf.reshape(rows[:, : self._stored_length], [-1])

    def _choose(self, sequences: _Sequences, numbers: RowNumbers) -> tuple[tf.Tensor, tf.Tensor]:
        """Chooses the tokens to predict.

        Returns:
          Their ascending indices in the flattened sequences, int32 [m], and how many there are in
          each sequence, int32 [n].
        """
        column = tf.range(self.length)
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
        budgets = tf.constant(self.options.budgets(np.arange(self.length + 1)))
        budget = tf.gather(budgets, sequences.last[:, 0] + 1)
        chosen, room = self._take_turns(words, budget, numbers)
        chosen = tf.cast(tf.where(chosen)[:, 0], tf.int32)
        indices = tf.raw_ops.RaggedRange(
            starts=tf.gather(words.bounds, chosen),
            limits=tf.gather(words.bounds, chosen + 1),
            deltas=1,
            Tsplits=tf.int32,
        )
        return indices.rt_dense_values, budget - room

    def _take_turns(
        self, words: _Words, budget: tf.Tensor, numbers: RowNumbers
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws one span per turn and sequence, until the budgets or the words are used up.

        A turn draws any word, and is void if that word was drawn or chosen before. This visits the
        words in random order without sorting them.

        Args:
          words: of n sequences.
          budget: int32 [n]: number of tokens to choose.
          numbers: for the n sequences.

        Returns:
          bool [total]: the chosen words; int32 [n]: the rest of the budgets.
        """
        thresholds = [0, *self.options.span_thresholds()[:-1].tolist()]
        ngram = self.options.ngram
        nowhere = tf.size(words.states) - ngram
        count = tf.cast(words.count, tf.float32)

        # Vectors [n] only: TensorFlow is much slower on narrow matrices [n, ngram].
        def take_turn(
            turn: tf.Tensor, room: tf.Tensor, left: tf.Tensor, states: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            drawn, length = tf.unstack(numbers.uniform(_TURN + turn, 2), axis=1)
            offset = tf.minimum(tf.cast(drawn * count, tf.int32), words.count - 1)
            span = [words.first + offset + k for k in range(ngram)]
            bounds = [tf.gather(words.bounds, word) for word in (*span, span[-1] + 1)]
            sizes = [bound - bounds[0] for bound in bounds[1:]]
            before = [tf.gather(states, word) for word in span]
            # The words of the span, without those at its end that do not fit.
            within = itertools.accumulate((s != _SPECIAL for s in before), tf.logical_and)
            fits = [
                inside & (length >= t) & (size <= room)
                for inside, t, size in zip(within, thresholds, sizes)
            ]
            is_new = before[0] == _NEW
            overlaps = [fit & (state == _CHOSEN) for fit, state in zip(fits, before)]
            is_free = is_new & ~functools.reduce(tf.logical_or, overlaps)
            chosen = [fit & is_free for fit in fits]
            changed = [is_new, *chosen[1:]]
            is_changed = tf.cast(tf.concat(changed, 0), tf.int32)
            where = nowhere + is_changed * (tf.concat(span, 0) - nowhere)
            new_states = _DRAWN + tf.cast(tf.concat(chosen, 0), tf.uint8)
            states = tf.tensor_scatter_nd_update(states, where[:, None], new_states)
            for k in range(ngram):
                # The differences add up to the size of the longest span that fits.
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
        self, sequences: _Sequences, indices: tf.Tensor, counts: tf.Tensor, numbers: RowNumbers
    ) -> dict[str, tf.Tensor]:
        """Replaces the tokens at `indices` and lists them by sequence."""
        width = self.options.max_predictions_per_seq
        ids = tf.reshape(sequences.ids, [-1])
        rows = tf.RaggedTensor.from_row_lengths(indices, counts, validate=False)
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
        ids = tf.tensor_scatter_nd_update(ids, indices[:, None], tf.boolean_mask(new, used))
        return {
            "input_word_ids": tf.reshape(ids, sequences.ids.shape),
            "masked_lm_positions": in_use * (listed % self.length),
            "masked_lm_ids": labels,
            "masked_lm_weights": tf.cast(used, tf.float32),
        }
