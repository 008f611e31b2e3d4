# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""N-gram masking of whole words, for many instances at once.

Source: google-research/albert create_pretraining_data.create_masked_lm_predictions; paper, section
4.1. Within an instance each span depends on those before it, so the loop runs over the order of
drawing, and NumPy over the instances.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_tf.data.masking_options import KEEP_SHARE, MASK_SHARE, MaskingOptions
from data_prep.assembly import Batch


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of n instances, numbered from 0; text positions do not count [CLS] and [SEP].

    Attributes:
      bounds: int32 [n, most_words + 1]: word w has the text positions [bounds[w], bounds[w + 1]).
      counts: int32 [n]: number of words.
      first_of_b: int32 [n]: the first word that no span from segment A may reach.
    """

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
    counts = np.count_nonzero(starts, axis=1).astype(np.int32)
    row, position = _unravel(np.flatnonzero(starts), starts.shape[1])
    after_separator = position > batch.a_lengths[row]
    most_words = int(counts.max())
    lengths = (batch.a_lengths + batch.b_lengths).astype(np.int32)
    bounds = np.repeat(lengths[:, None], most_words + 1, axis=1)
    # The words of a row are in order and fill its first columns.
    bounds[np.arange(most_words + 1, dtype=np.int32) < counts[:, None]] = (
        position - 1 - after_separator
    )
    first_of_b = counts
    if options.within_segments:
        first_of_b = counts - np.bincount(row[after_separator], minlength=len(counts))
    return Words(bounds, counts, first_of_b)


def _unravel(indices: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Converts indices of a flattened array to rows and columns; much faster than divmod."""
    rows = indices // width
    return rows, indices - rows * width


def choose_words(
    words: Words,
    budgets: np.ndarray,
    options: MaskingOptions,
    rng: np.random.Generator,
    taken: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses the words to predict.

    Each word of an instance, in random order, is the start of a span of random length. A span that
    exceeds the remaining budget is shortened word by word. It is skipped if even one word exceeds
    the budget, or if it overlaps an earlier span.

    Args:
      words: the words of n instances.
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
    order = _random_order(words.counts, most_words, rng)
    bounds = words.bounds.ravel()
    unavailable = np.zeros((n, width), bool)
    if taken is not None:
        unavailable[:, :most_words] = taken
    chosen = unavailable.ravel()
    spans = np.zeros(options.ngram, np.int64)
    thresholds = options.span_thresholds()[:-1]
    rows, room, counts, first_of_b = np.arange(n), budgets, words.counts, words.first_of_b
    for turn in range(most_words):
        unfinished = (room > 0) & (counts > turn)
        if not unfinished.all():
            rows, room, counts, first_of_b = (
                column[unfinished] for column in (rows, room, counts, first_of_b)
            )
            if not len(rows):
                break
        start = order[turn].take(rows)
        drawn = 1 + np.searchsorted(thresholds, rng.random(len(rows)), side="right")
        end = np.minimum(start + drawn, np.where(start < first_of_b, first_of_b, counts))
        base = rows * width
        begin_token = bounds.take(base + start)
        for _ in range(options.ngram - 1):
            too_long = (bounds.take(base + end) - begin_token > room) & (end > start + 1)
            end -= too_long
        size = bounds.take(base + end) - begin_token
        accepted = size <= room
        span = [base + np.minimum(start + k, end - 1) for k in range(options.ngram)]
        for word in span:
            accepted &= ~chosen.take(word)
        for word in span:
            chosen[word[accepted]] = True
        room = room - size * accepted
        spans += np.bincount((end - start)[accepted] - 1, minlength=options.ngram)
    chosen = chosen.reshape(n, width)[:, :most_words]
    return chosen if taken is None else chosen & ~taken, spans


def _random_order(counts: np.ndarray, most_words: int, rng: np.random.Generator) -> np.ndarray:
    """Shuffles the words of each instance.

    Args:
      counts: int32 [n]: number of words.
      most_words: the largest count.
      rng: source of all randomness.

    Returns:
      int32 [most_words, n]: each column starts with the words of an instance in random order.
    """
    column = np.arange(most_words, dtype=np.int32)
    keys = rng.random((len(counts), most_words), dtype=np.float32)
    keys[column >= counts[:, None]] = 2
    # Nonnegative floats sort as their bits do. The word's number in the low bits makes the keys
    # unique, so that the order does not depend on the sorting algorithm.
    unique = keys.view(np.uint32).astype(np.uint64)
    unique <<= np.uint64(32)
    unique |= column.astype(np.uint64)
    unique.sort(axis=1)
    return np.ascontiguousarray(unique.astype(np.int32).T)


@dataclasses.dataclass(frozen=True)
class Masked:
    """n masked instances.

    Attributes:
      input_ids: int32 [n, length], with replacements.
      positions, labels: int32 [n, predictions], ascending positions; padded with 0.
      weights: float32 [n, predictions]: 1 for a prediction, 0 for padding.
      span_counts: int64 [ngram]: chosen spans of 1 … ngram words.
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
      random_ids: int32: the ids from which random replacements are drawn.
      rng: source of all randomness.
    """
    words = find_words(batch, options)
    budgets = options.budgets(batch.lengths)
    chosen, span_counts = choose_words(words, budgets, options, rng)
    predicted = _token_indices(batch, words, chosen)
    original = batch.input_ids.ravel()
    input_ids = original.copy()
    draw = rng.random(len(predicted))
    by_random = draw >= MASK_SHARE + KEEP_SHARE
    replacement = np.where(draw < MASK_SHARE, mask_id, original[predicted])
    replacement[by_random] = random_ids[rng.integers(len(random_ids), size=by_random.sum())]
    input_ids[predicted] = replacement
    permuted = 0
    if options.permute:
        others, _ = choose_words(words, budgets, options, rng, taken=chosen)
        shuffled = _token_indices(batch, words, others)
        permuted = len(shuffled)
        # A random order within each row; the rows stay in order.
        order = np.lexsort((rng.random(permuted), shuffled // batch.input_ids.shape[1]))
        input_ids[shuffled] = original[shuffled][order]
        predicted = np.sort(np.concatenate([predicted, shuffled]))

    row, position = _unravel(predicted, batch.input_ids.shape[1])
    counts = np.bincount(row, minlength=len(chosen))
    slot = row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    shape = (len(chosen), options.predictions)
    positions, labels = np.zeros((2, *shape), np.int32)
    positions[slot] = position
    labels[slot] = original[predicted]
    weights = np.zeros(shape, np.float32)
    weights[slot] = 1
    by_mask = int((draw < MASK_SHARE).sum())
    return Masked(
        input_ids.reshape(batch.input_ids.shape),
        positions,
        labels,
        weights,
        span_counts,
        replaced_by_mask=by_mask,
        kept=len(draw) - by_mask - int(by_random.sum()),
        replaced_by_random=int(by_random.sum()),
        permuted=permuted,
    )


def _token_indices(batch: Batch, words: Words, chosen: np.ndarray) -> np.ndarray:
    """Returns the ascending int64 indices of the chosen words' tokens in the flattened batch."""
    width = words.bounds.shape[1]
    row, word = _unravel(np.flatnonzero(chosen), chosen.shape[1])
    first = words.bounds.ravel()[row * width + word]
    sizes = words.bounds.ravel()[row * width + word + 1] - first
    text = np.arange(sizes.sum()) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    row = np.repeat(row, sizes)
    return row * batch.input_ids.shape[1] + text + 1 + (text >= batch.a_lengths[row])
