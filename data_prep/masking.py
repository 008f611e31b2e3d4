# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""N-gram masking of whole words, for many instances at once.

Source: google-research/albert create_pretraining_data.create_masked_lm_predictions; paper, section
4.1. The procedure is sequential within an instance (each span depends on those before it), so the
loop runs over the drawing order and NumPy over the instances.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_tf.data.masking_options import KEEP_SHARE, MASK_SHARE, MaskingOptions
from data_prep.assembly import Batch


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of each instance, numbered from 0, in text positions (without [CLS] and [SEP]).

    Attributes:
      of_position: int32 [n, length]: the word that a position of the sequence belongs to; of
        meaning only where the batch's `is_text` holds.
      bounds: int32 [n, most_words + 1]: word w has the text positions [bounds[w], bounds[w + 1]).
      counts: int32 [n].
      first_of_b: int32 [n]: number of the first word that no span from segment A may reach.
    """

    of_position: np.ndarray
    bounds: np.ndarray
    counts: np.ndarray
    first_of_b: np.ndarray


def find_words(batch: Batch, options: MaskingOptions) -> Words:
    """Groups the text positions of each instance into words."""
    starts = batch.is_text & (batch.piece_starts if options.whole_words else True)
    rows = np.arange(len(starts))
    starts[:, 1] = True
    if options.within_segments:
        has_b = batch.b_lengths > 0
        starts[rows[has_b], batch.a_lengths[has_b] + 2] = True
    running = np.cumsum(starts, axis=1, dtype=np.int32)
    counts = running[:, -1]
    lengths = batch.a_lengths + batch.b_lengths
    bounds = np.repeat(lengths[:, None], counts.max() + 1, axis=1).astype(np.int32)
    row, position = np.nonzero(starts)
    after_separator = position > batch.a_lengths[row]
    bounds[row, running[row, position] - 1] = position - 1 - after_separator
    first_of_b = counts
    if options.within_segments:
        first_of_b = running[rows, batch.a_lengths]
    return Words(running - 1, bounds, counts, first_of_b)


def choose_words(
    words: Words,
    budgets: np.ndarray,
    options: MaskingOptions,
    rng: np.random.Generator,
    taken: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses the words to predict.

    Every word of an instance is, in random order, the start of a span of randomly drawn length. A
    span that exceeds what is left of the budget is shortened word by word, one that still does is
    passed over, as is one that meets an earlier span.

    Args:
      words: of n instances.
      budgets: int32 [n]: tokens to choose.
      options: see MaskingOptions.
      rng: source of all randomness.
      taken: bool [n, most_words]: words that cannot be chosen.

    Returns:
      chosen: bool [n, most_words].
      span_counts: int64 [ngram]: accepted spans of 1 … ngram words.
    """
    n, most_words = words.bounds.shape[0], words.bounds.shape[1] - 1
    width = most_words + 1
    keys = rng.random((n, most_words), dtype=np.float32)
    keys[np.arange(most_words) >= words.counts[:, None]] = 2
    order = np.argsort(keys, axis=1).astype(np.int32)
    bounds = words.bounds.ravel()
    unavailable = np.zeros((n, width), bool)
    if taken is not None:
        unavailable[:, :most_words] = taken
    chosen = unavailable.ravel()
    room = budgets.copy()
    spans = np.zeros(options.ngram, np.int64)
    thresholds = options.span_thresholds()[:-1]
    rows = np.arange(n)
    for turn in range(most_words):
        rows = rows[(room[rows] > 0) & (words.counts[rows] > turn)]
        if not len(rows):
            break
        base = rows * width
        start = order[rows, turn]
        drawn = 1 + np.searchsorted(thresholds, rng.random(len(rows)), side="right")
        first_of_b = words.first_of_b[rows]
        limit = np.where(start < first_of_b, first_of_b, words.counts[rows])
        end = np.minimum(start + drawn, limit)
        begin_token = bounds[base + start]
        for _ in range(options.ngram - 1):
            too_long = (bounds[base + end] - begin_token > room[rows]) & (end > start + 1)
            end -= too_long
        size = bounds[base + end] - begin_token
        accepted = size <= room[rows]
        for k in range(options.ngram):
            accepted &= ~chosen[base + np.minimum(start + k, end - 1)]
        base, start, end = base[accepted], start[accepted], end[accepted]
        for k in range(options.ngram):
            chosen[base + np.minimum(start + k, end - 1)] = True
        room[rows[accepted]] -= size[accepted]
        spans += np.bincount(end - start - 1, minlength=options.ngram)
    chosen = chosen.reshape(n, width)[:, :most_words]
    return chosen if taken is None else chosen & ~taken, spans


@dataclasses.dataclass(frozen=True)
class Masked:
    """What masking makes of a batch of n instances.

    Attributes:
      input_ids: int32 [n, length], with replacements.
      positions, labels: int32 [n, predictions], ascending positions; padded with 0.
      weights: float32 [n, predictions]: 1 for a prediction, 0 for padding.
      span_counts: int64 [ngram].
      replaced_by_mask, kept, replaced_by_random, permuted: numbers of predicted tokens.
    """

    input_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    span_counts: np.ndarray
    replaced_by_mask: int
    kept: int
    replaced_by_random: int
    permuted: int


def mask(
    batch: Batch,
    options: MaskingOptions,
    mask_id: int,
    random_ids: np.ndarray,
    rng: np.random.Generator,
) -> Masked:
    """Masks n instances.

    Args:
      batch: the instances.
      options: see MaskingOptions.
      mask_id: id of [MASK].
      random_ids: int32: the ids a random replacement is drawn from.
      rng: source of all randomness.
    """
    words = find_words(batch, options)
    budgets = options.budgets(batch.lengths)
    chosen, span_counts = choose_words(words, budgets, options, rng)
    predicted = _positions(batch, words, chosen)
    input_ids = batch.input_ids.copy()
    draw = rng.random(int(predicted.sum()))
    by_random = draw >= MASK_SHARE + KEEP_SHARE
    replacement = np.where(draw < MASK_SHARE, mask_id, input_ids[predicted])
    replacement[by_random] = random_ids[rng.integers(len(random_ids), size=by_random.sum())]
    input_ids[predicted] = replacement
    permuted = 0
    if options.permute:
        others, _ = choose_words(words, budgets, options, rng, taken=chosen)
        shuffled = _positions(batch, words, others)
        row = np.nonzero(shuffled)[0]
        permuted = len(row)
        # A random order within each row, as the rows are in order already.
        order = np.lexsort((rng.random(permuted), row))
        input_ids[shuffled] = batch.input_ids[shuffled][order]
        predicted |= shuffled

    row, position = np.nonzero(predicted)
    counts = np.bincount(row, minlength=len(chosen))
    slot = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (len(chosen), options.predictions)
    positions, labels = np.zeros((2, *shape), np.int32)
    positions[row, slot] = position
    labels[row, slot] = batch.input_ids[row, position]
    weights = np.zeros(shape, np.float32)
    weights[row, slot] = 1
    by_mask = int((draw < MASK_SHARE).sum())
    return Masked(
        input_ids,
        positions,
        labels,
        weights,
        span_counts,
        replaced_by_mask=by_mask,
        kept=len(draw) - by_mask - int(by_random.sum()),
        replaced_by_random=int(by_random.sum()),
        permuted=permuted,
    )


def _positions(batch: Batch, words: Words, chosen: np.ndarray) -> np.ndarray:
    """bool [n, length]: the text positions that belong to chosen words."""
    flat_words = words.of_position + (np.arange(len(chosen)) * chosen.shape[1])[:, None]
    return batch.is_text & chosen.ravel()[np.maximum(flat_words, 0)]
