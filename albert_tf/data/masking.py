# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Masks compact records: once in the record builder, or anew in every epoch while training.

Source: google-research/albert create_pretraining_data.create_masked_lm_predictions; paper, section
4.1. Masks that change with every epoch: Liu et al. 2019 (RoBERTa), section 4.1. Within a sequence
each span depends on those before it, so the loop runs over the order of drawing, and NumPy over the
sequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from albert_tf.data import records
from albert_tf.data.masking_options import MASKING_OPTIONS, MaskingOptions
from albert_tf.io.json_values import digest

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.tokenization.tokenizer import Tokenizer

#: Shares of the predicted tokens that become [MASK] and that stay; the rest become random pieces.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1
#: Streams of random numbers.
_PART, _SWAP, _WORDS, _REPLACEMENT, _RANDOM_ID = range(5)
#: Of the random number of a word, the number of the word replaces the lowest _WORD_BITS bits. The
#: _LENGTH_BITS bits above them decide the length of its span, and the rest the order of the words.
_WORD_BITS, _LENGTH_BITS = 16, 24


def budgets(options: MaskingOptions, lengths: np.ndarray) -> np.ndarray:
    """Returns how many tokens to predict at each length, int32 [n]; halves round to even."""
    wanted = np.maximum(1, np.rint(lengths * options.masked_lm_prob))
    return np.minimum(options.max_predictions_per_seq, wanted).astype(np.int32)


def span_thresholds(options: MaskingOptions) -> np.ndarray:
    """Returns the cumulative probabilities of spans of 1 … ngram words, float64 [ngram]."""
    weights = 1 / np.arange(1, options.ngram + 1)
    if not options.favor_shorter_ngram:
        weights = weights[::-1]
    return np.cumsum(weights / weights.sum())


class RowNumbers(NamedTuple):
    """Random numbers from consecutive rows of an endless table.

    The generator (Philox) is a function of a counter, so any row can be computed by itself.
    """

    seed: int
    first_row: int
    rows: int

    def raw(self, stream: int, width: int) -> np.ndarray:
        """Returns uint64 [rows, width] with 64 random bits each."""
        blocks = -(-width // 4)  # Each value of the counter gives four numbers.
        key = np.array([self.seed % (1 << 64), stream], np.uint64)
        generator = np.random.Philox(key=key, counter=self.first_row * blocks)
        return generator.random_raw(self.rows * blocks * 4).reshape(-1, blocks * 4)[:, :width]

    def uniform(self, stream: int, width: int) -> np.ndarray:
        """Returns float64 [rows, width], uniform in [0, 1)."""
        return (self.raw(stream, width) >> np.uint64(11)) * 2.0**-53


class _Sequences(NamedTuple):
    """n sequences ``[CLS] A [SEP] B [SEP]`` before masking.

    Attributes:
      ids: int32 [n, length], padded with 0.
      starts: bool [n, length]: a word of the text starts here.
      separator, last: int32 [n]: positions of the first and the last [SEP], equal if there is one
        segment.
      swapped: bool [n]: whether the segments are in reverse order.
    """

    ids: np.ndarray
    starts: np.ndarray
    separator: np.ndarray
    last: np.ndarray
    swapped: np.ndarray


class Masking:
    """Turns compact records into pretraining batches.

    Args:
      features: layout of the records, `records.compact_features`.
      options: how words are chosen, with max_predictions_per_seq.
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
        identity = {name: getattr(options, name) for name in MASKING_OPTIONS}
        self.fingerprint = digest([identity, swap, self.length])
        self.is_part = self.length < self._stored_length
        if self.is_part:
            share = self.length / self._stored_length
            predictions = max(1, round(share * options.max_predictions_per_seq))
            options = dataclasses.replace(options, max_predictions_per_seq=predictions)
        self.options = options
        self._tokenizer = tokenizer
        self._swap = swap and not self.is_part
        ids = np.arange(tokenizer.vocab_size, dtype=np.int32)
        self._random_ids = np.setdiff1d(ids, tokenizer.special_ids)

    def draw(self, serialized: tf.Tensor, seed: int, first_row: tf.Tensor) -> dict[str, tf.Tensor]:
        """Masks serialized records, string [n] with a static n, in an input pipeline.

        Returns tensors: what `mask` returns, without `token_boundary`. `first_row` is an int64
        scalar.
        """
        import tensorflow as tf

        columns = records.parse_columns(serialized, self.features)
        names = list(columns)
        features = records.pretraining_features(self.length, self.options.max_predictions_per_seq)
        layout = records.to_model_names(features)
        del layout["token_boundary"]  # No model reads it.

        def mask(first_row, *values) -> list[np.ndarray]:
            try:
                masked = self.mask(dict(zip(names, values)), seed, int(first_row))
            except IndexError as error:  # TensorFlow takes a ValueError for one of the data.
                raise ValueError(f"A record has an unknown id ({error}).") from error
            return [masked[name] for name in layout]

        types = [tf.float32 if spec.dtype == "float32" else tf.int32 for spec in layout.values()]
        outputs = tf.numpy_function(mask, [first_row, *columns.values()], types)
        return {
            name: tf.ensure_shape(output, [*serialized.shape, *spec.shape])
            for (name, spec), output in zip(layout.items(), outputs)
        }

    def mask(
        self, columns: Mapping[str, np.ndarray], seed: int, first_row: int
    ) -> dict[str, np.ndarray]:
        """Joins the segments of n records and masks the sequences.

        Args:
          columns: [n, *shape]: the features of the records.
          seed: of all random choices.
          first_row: position of the first record in the stream of examples. The choices for a
            record depend on the seed and its position alone.

        Returns:
          Arrays [n, length] and [n, predictions] by their names in models and records:
          `input_word_ids`, `input_mask`, `input_type_ids`, `masked_lm_positions`, `masked_lm_ids`
          int32, `masked_lm_weights` float32, and `next_sentence_labels` int32 [n]. And
          `token_boundary` int32 [n, length]: 1 where a word starts, and at [CLS] and [SEP].
        """
        numbers = RowNumbers(seed, first_row, len(columns["text_ids"]))
        sequences = self._lay_out(columns, numbers)
        chosen = self._choose(sequences, numbers)
        column = np.arange(self.length, dtype=np.int32)
        in_use = column <= sequences.last[:, None]
        in_second = in_use & (column > sequences.separator[:, None])
        is_start = self._tokenizer.word_starts.take(sequences.ids)
        return {
            **self._replace(sequences.ids, chosen, numbers),
            "input_mask": in_use.astype(np.int32),
            "input_type_ids": in_second.astype(np.int32),
            "next_sentence_labels": sequences.swapped.astype(np.int32),
            "token_boundary": (is_start & in_use).astype(np.int32),
        }

    def _lay_out(self, columns: Mapping[str, np.ndarray], numbers: RowNumbers) -> _Sequences:
        """Joins the segments with [CLS] and [SEP], in a random order if `swap` is set."""
        a, b = columns["segment_lengths"].astype(np.int32).T
        skipped = np.zeros_like(a)
        if self.is_part:
            kept = np.minimum(a + b, self.length - np.where(b > 0, 3, 2))
            skipped = (numbers.uniform(_PART, 1)[:, 0] * (a + b - kept + 1)).astype(np.int32)
            b = np.where(b > 0, kept // 2, 0)
            a = kept - b
        swapped = self._swap & (numbers.uniform(_SWAP, 1)[:, 0] < 0.5) & (b > 0)
        separator = np.where(swapped, b, a) + 1
        last = np.where(b > 0, a + b + 2, separator)
        column = np.arange(self.length, dtype=np.int32)
        is_text = (column > 0) & (column < last[:, None]) & (column != separator[:, None])
        # Where each token is in the flattened texts: its column plus the offset of its segment.
        row = self._stored_length * np.arange(numbers.rows) + skipped
        first = row - 1 + np.where(swapped, a, 0)
        second = row - 1 + np.where(swapped, 0, a) - separator
        index = column + first[:, None] + (column > separator[:, None]) * (second - first)[:, None]
        ids = columns["text_ids"].ravel().take(index, mode="clip") * is_text
        ids = ids.astype(np.int32, copy=False)
        rows = np.arange(numbers.rows)
        ids[:, 0] = self._tokenizer.cls_id
        ids[rows, separator] = ids[rows, last] = self._tokenizer.sep_id
        starts = is_text
        if self.options.do_whole_word_mask:
            stored = np.unpackbits(columns["word_starts"], axis=1)[:, : self._stored_length]
            starts = is_text & stored.ravel().take(index, mode="clip").view(bool)
            # A segment may begin inside a word; the rest of the word counts as one.
            starts[:, 1] = is_text[:, 1]
            starts[rows[b > 0], separator[b > 0] + 1] = True
        return _Sequences(ids, starts, separator, last, swapped)

    def _choose(self, sequences: _Sequences, numbers: RowNumbers) -> np.ndarray:
        """Chooses the tokens to predict.

        Each word of a sequence, in random order, starts a span of random length. A span that
        exceeds the remaining budget is shortened word by word. It is skipped if even one word
        exceeds the budget, or if it overlaps an earlier span.

        Returns:
          The ascending indices of the tokens in the flattened sequences, int64 [m].
        """
        n, length = sequences.starts.shape
        separator, last = sequences.separator, sequences.last
        # A [SEP] between two segments is listed among the words and cannot be chosen.
        listed = sequences.starts.copy()
        pairs = np.flatnonzero(separator < last)
        listed[pairs, separator[pairs]] = True
        indices, row_starts = np.flatnonzero(listed), length * np.arange(n)
        first_of_row = np.searchsorted(indices, row_starts)
        before = np.searchsorted(indices, row_starts + separator) - first_of_row
        counts = np.diff(first_of_row, append=len(indices))
        width = int(counts.max()) + 1
        # Word w of a row has the columns [bounds[w], bounds[w + 1]).
        bounds = np.repeat(last[:, None], width, axis=1)
        is_word = np.arange(width) < counts[:, None]
        bounds[is_word] = indices - np.repeat(row_starts, counts)
        bounds = bounds.ravel()
        chosen = np.zeros(n * width, bool)
        separators = width * pairs + before[pairs]
        chosen[separators] = True

        word_bits = np.uint64((1 << _WORD_BITS) - 1)
        keys = np.ascontiguousarray(numbers.raw(_WORDS, length)[:, : width - 1]) & ~word_bits
        keys |= np.arange(width - 1, dtype=np.uint64)
        keys[~is_word[:, :-1]] = np.iinfo(np.uint64).max
        keys.sort(axis=1)  # So the words are in random order.
        thresholds = span_thresholds(self.options)[:-1, None] * (1 << _LENGTH_BITS)
        room = budgets(self.options, last + 1)
        rows, steps = np.arange(n), np.arange(self.options.ngram + 1)[:, None]
        for turn in range(width - 1):
            unfinished = (room > 0) & (counts > turn)
            if not unfinished.all():
                rows, room, counts, before = (
                    column[unfinished] for column in (rows, room, counts, before)
                )
                if not len(rows):
                    break
            key = keys[rows, turn]
            start = (key & word_bits).astype(np.int64)
            bits = key >> np.uint64(_WORD_BITS) & np.uint64((1 << _LENGTH_BITS) - 1)
            drawn = 1 + (bits >= thresholds).sum(axis=0)
            words = np.minimum(drawn, np.where(start < before, before, counts) - start)
            span = rows * width + start + steps
            tokens = bounds.take(span, mode="clip")
            sizes = tokens[1:] - tokens[0]
            # Row k says whether the span has a word k: it does not exceed the budget, and then
            # none of its words is chosen already.
            taken = (steps[:-1] < words) & (sizes <= room)
            taken &= ~(chosen.take(span[:-1], mode="clip") & taken).any(axis=0)
            chosen[span[:-1][taken]] = True
            room = room - (sizes * taken).max(axis=0)
        chosen[separators] = False

        words = np.flatnonzero(chosen)
        first = bounds[words]
        sizes = bounds[words + 1] - first
        begins = words // width * length + first
        return np.arange(sizes.sum()) + np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)

    def _replace(
        self, ids: np.ndarray, chosen: np.ndarray, numbers: RowNumbers
    ) -> dict[str, np.ndarray]:
        """Replaces the tokens at the indices `chosen` and lists them by sequence."""
        n, length = ids.shape
        row = chosen // length
        counts = np.bincount(row, minlength=n)
        slot = row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        shape = n, self.options.max_predictions_per_seq
        positions, labels = np.zeros((2, *shape), np.int32)
        weights = np.zeros(shape, np.float32)
        original = ids.ravel()[chosen]
        positions[slot], labels[slot], weights[slot] = chosen - row * length, original, 1
        draw = numbers.uniform(_REPLACEMENT, shape[1])[slot]
        random = (numbers.uniform(_RANDOM_ID, shape[1])[slot] * len(self._random_ids)).astype(int)
        new = np.where(draw < MASK_SHARE + KEEP_SHARE, original, self._random_ids[random])
        new[draw < MASK_SHARE] = self._tokenizer.mask_id
        ids = ids.copy()
        ids.ravel()[chosen] = new
        return {
            "input_word_ids": ids,
            "masked_lm_positions": positions,
            "masked_lm_ids": labels,
            "masked_lm_weights": weights,
        }
