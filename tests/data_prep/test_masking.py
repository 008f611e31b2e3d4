# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Masking: the official builder's distribution, budgets, whole words, segments, replacements."""

import numpy as np
import pytest

from albert_tf.data.masking_options import MASK_SHARE, MaskingOptions
from data_prep.assembly import Batch
from data_prep.masking import choose_words, find_words, mask
from tests.support.builders import write_tokenizer

CLS, SEP, MASK, FIRST_TEXT_ID = 2, 3, 4, 5
VOCAB = 30000
TEXT_IDS = np.arange(FIRST_TEXT_ID, VOCAB)


def batch_of(ids, piece_starts=None):
    """Returns sequences, int [n, length]; by default all pieces start a word."""
    ids = np.array(ids, np.int32)
    in_use = ids > 0
    starts = in_use if piece_starts is None else np.array(piece_starts, bool) & in_use
    a_lengths, lengths = (ids == SEP).argmax(axis=1) - 1, in_use.sum(axis=1)
    b_lengths = np.maximum(lengths - a_lengths - 3, 0)
    return Batch(ids, ids >= FIRST_TEXT_ID, starts, a_lengths, b_lengths, lengths)


def random_batch(n, length, rng, piece_start_share=1.0, lengths=None):
    """Returns n sequences [CLS] A [SEP] B [SEP], of full or of given lengths."""
    lengths = np.full(n, length) if lengths is None else lengths
    a = 1 + rng.integers(0, lengths - 4)
    column = np.arange(length)
    is_text = (column > 0) & (column != a[:, None] + 1) & (column < lengths[:, None] - 1)
    ids = np.where(is_text, rng.integers(FIRST_TEXT_ID, VOCAB, (n, length)), 0)
    ids[:, 0] = CLS
    ids[np.arange(n), a + 1] = SEP
    ids[np.arange(n), lengths - 1] = SEP
    return batch_of(ids, (rng.random((n, length)) < piece_start_share) | ~is_text)


def mask_text(batch, options, rng, ids=TEXT_IDS):
    return mask(batch, options, MASK, ids, rng)


def words_of_row(batch, row, options):
    """Returns the words as lists of positions, collected piece by piece."""
    words = []
    a_length = batch.a_lengths[row]
    for position in np.flatnonzero(batch.is_text[row]):
        begins = not words or batch.piece_starts[row, position] or not options.whole_words
        if options.within_segments and position == a_length + 2:
            begins = True
        if begins:
            words.append([])
        words[-1].append(position)
    return words


# Measured on the official builder with words of one piece; the last number is the budget.
@pytest.mark.parametrize(
    ("length", "predictions", "favor_shorter", "ngram", "shares", "per_instance", "masked"),
    [
        (512, 77, True, 3, (0.566, 0.268, 0.166), 48.14, 77),
        (512, 20, True, 3, (0.570, 0.272, 0.158), 12.59, 20),
        (128, 20, True, 3, (0.585, 0.265, 0.150), 12.14, 19),
        (128, 20, False, 3, (0.237, 0.290, 0.472), 8.50, 19),
        (128, 20, True, 2, (0.697, 0.303), 14.58, 19),
    ],
)
def test_span_lengths_are_distributed_as_by_the_official_builder(
    length, predictions, favor_shorter, ngram, shares, per_instance, masked
):
    rng = np.random.default_rng(1)
    batch = random_batch(6000, length, rng)
    options = MaskingOptions(
        predictions, 0.15, ngram, favor_shorter_ngram=favor_shorter, within_segments=False
    )
    result = mask_text(batch, options, rng)
    spans = result.span_counts
    np.testing.assert_allclose(spans / spans.sum(), shares, atol=0.01)
    assert spans.sum() / 6000 == pytest.approx(per_instance, abs=0.15)
    assert (result.weights.sum(axis=1) == masked).mean() >= 0.999


def test_the_first_word_is_masked_less_often_than_the_middle():
    rng = np.random.default_rng(2)
    batch = random_batch(8000, 128, rng)
    options = MaskingOptions(20, within_segments=False)
    result = mask_text(batch, options, rng)
    positions = result.positions[result.weights > 0]
    assert (positions == 1).sum() / 8000 == pytest.approx(0.089, abs=0.012)
    assert ((positions >= 60) & (positions < 70)).sum() / 80000 == pytest.approx(0.151, abs=0.012)


def test_replacements_are_eighty_ten_ten_and_labels_are_the_originals():
    rng = np.random.default_rng(3)
    batch = random_batch(4000, 512, rng)
    result = mask_text(batch, MaskingOptions(77), rng)
    used = result.weights > 0
    labels = result.labels[used]
    rows = np.nonzero(used)[0]
    assert len(rows) > 200_000
    np.testing.assert_array_equal(labels, batch.input_ids[rows, result.positions[used]])
    put = result.input_ids[rows, result.positions[used]]
    assert (put == MASK).mean() == pytest.approx(0.8, abs=0.005)
    assert (put == labels).mean() == pytest.approx(0.1, abs=0.005)
    random = put[(put != MASK) & (put != labels)]
    assert len(random) / len(put) == pytest.approx(0.1, abs=0.005)
    assert random.min() >= FIRST_TEXT_ID
    assert result.replaced_by_mask == (put == MASK).sum()
    assert result.replaced_by_mask + result.kept + result.replaced_by_random == len(put)
    untouched = np.ones(batch.input_ids.shape, bool)
    untouched[rows, result.positions[used]] = False
    np.testing.assert_array_equal(result.input_ids[untouched], batch.input_ids[untouched])


def test_without_a_share_for_random_pieces_the_rest_is_kept(monkeypatch):
    """By default both shares are 0.1, so no statistics tell them apart."""
    monkeypatch.setattr("data_prep.masking.KEEP_SHARE", 1 - MASK_SHARE)
    rng = np.random.default_rng(6)
    batch = random_batch(200, 64, rng)
    result = mask_text(batch, MaskingOptions(9), rng)
    kept = result.input_ids == batch.input_ids
    assert (kept | (result.input_ids == MASK)).all()
    assert result.kept > 100 and result.replaced_by_random == 0


def test_random_replacements_are_uniform_over_the_given_ids():
    rng = np.random.default_rng(4)
    batch = random_batch(4000, 128, rng)
    allowed = np.array([7, 100, 29999], np.int32)
    result = mask_text(batch, MaskingOptions(20), rng, allowed)
    changed = result.input_ids[(result.input_ids != batch.input_ids) & (result.input_ids != MASK)]
    ids, counts = np.unique(changed, return_counts=True)
    np.testing.assert_array_equal(ids, allowed)
    np.testing.assert_allclose(counts / counts.sum(), 1 / 3, atol=0.03)


def test_positions_are_ascending_text_positions_padded_with_zeros():
    rng = np.random.default_rng(5)
    batch = random_batch(500, 64, rng, 0.7, rng.integers(10, 65, 500))
    result = mask_text(batch, MaskingOptions(12), rng)
    for row in range(500):
        count = int(result.weights[row].sum())
        assert count >= 1
        positions = result.positions[row, :count]
        assert (np.diff(positions) > 0).all()
        assert batch.is_text[row, positions].all()
        assert not result.positions[row, count:].any()
        assert not result.labels[row, count:].any()
        assert not result.weights[row, count:].any()


@pytest.mark.parametrize("whole_words", [True, False])
@pytest.mark.parametrize("within_segments", [True, False])
def test_words_equal_those_collected_piece_by_piece(whole_words, within_segments):
    rng = np.random.default_rng(6)
    batch = random_batch(300, 48, rng, 0.6, rng.integers(8, 49, 300))
    options = MaskingOptions(8, whole_words=whole_words, within_segments=within_segments)
    words = find_words(batch, options)
    for row in range(300):
        expected = words_of_row(batch, row, options)
        assert words.counts[row] == len(expected)
        for number, positions in enumerate(expected):
            # Text positions: without [CLS] and, in segment B, the [SEP] before it.
            text = [p - 1 - (p > batch.a_lengths[row]) for p in positions]
            assert text == list(range(*words.bounds[row, number : number + 2]))
        in_a = sum(word[0] <= batch.a_lengths[row] for word in expected)
        assert words.first_of_b[row] == (in_a if within_segments else len(expected))


def test_a_word_is_masked_whole_or_not_at_all():
    rng = np.random.default_rng(7)
    batch = random_batch(600, 96, rng, 0.6)
    options = MaskingOptions(15)
    result = mask_text(batch, options, rng)
    for row in range(600):
        predicted = set(result.positions[row][result.weights[row] > 0].tolist())
        for word in words_of_row(batch, row, options):
            assert len(predicted.intersection(word)) in (0, len(word))


@pytest.mark.parametrize("within_segments", [True, False])
def test_spans_cross_the_separator_only_if_allowed(within_segments):
    # One span of three words would need two of them in the other segment: A has two words.
    n = 3000
    batch = batch_of([[CLS, 10, 11, SEP, 12, 13, SEP]] * n)
    options = MaskingOptions(3, 0.43, 3, favor_shorter_ngram=False, within_segments=within_segments)
    words = find_words(batch, options)
    _, spans = choose_words(words, np.full(n, 3), options, np.random.default_rng(8))
    assert (spans[2] > 0) == (not within_segments)
    assert spans[1] > 0


def test_budgets_round_half_to_even_and_are_capped():
    options = MaskingOptions(77)
    lengths = np.array([1, 3, 10, 30, 50, 512, 600])
    expected = [min(77, max(1, round(n * 0.15))) for n in lengths.tolist()]
    assert options.budgets(lengths).tolist() == expected


def test_a_word_longer_than_the_budget_is_skipped():
    batch = batch_of([[CLS, 10, 11, 12, 13, SEP, 14, SEP]], [[1, 1, 0, 0, 0, 1, 1, 1]])
    result = mask_text(batch, MaskingOptions(2), np.random.default_rng(9))
    assert result.positions.tolist() == [[6, 0]]
    assert result.labels.tolist() == [[14, 0]]


def test_a_single_segment_is_masked_like_a_pair():
    batch = batch_of([[CLS, 10, 11, SEP, 0, 0]])
    assert batch.input_mask.tolist() == [[1, 1, 1, 1, 0, 0]]
    assert not batch.segment_ids.any()
    result = mask_text(batch, MaskingOptions(2, 0.5), np.random.default_rng(0))
    assert result.positions.tolist() == [[1, 2]]


def test_permutation_shuffles_other_tokens_among_themselves_and_predicts_them():
    rng = np.random.default_rng(10)
    batch = random_batch(2000, 128, rng, 0.8)
    options = MaskingOptions(20, permute=True)
    result = mask_text(batch, options, rng)
    plain = mask_text(batch, MaskingOptions(20), rng)
    assert result.positions.shape == (2000, 40)
    assert result.permuted == pytest.approx(plain.weights.sum(), rel=0.01)
    moved_away = 0
    for row in range(2000):
        count = int(result.weights[row].sum())
        positions = result.positions[row, :count]
        assert (np.diff(positions) > 0).all()
        originals = batch.input_ids[row, positions]
        np.testing.assert_array_equal(result.labels[row, :count], originals)
        untouched = np.setdiff1d(np.arange(128), positions)
        np.testing.assert_array_equal(
            result.input_ids[row, untouched], batch.input_ids[row, untouched]
        )
        put = result.input_ids[row, positions]
        moved_away += int(((put != originals) & np.isin(put, originals)).sum())
        for word in words_of_row(batch, row, options):
            assert len(set(positions.tolist()).intersection(word)) in (0, len(word))
    # Of k tokens shuffled among themselves one stays in place on average.
    assert moved_away == pytest.approx(result.permuted - 2000, rel=0.03)


def test_with_wordpiece_each_chinese_character_is_a_word(tmp_path):
    tokenizer = write_tokenizer(tmp_path, ["学", "而", "##而", "ab", "##c", "，"])
    ids = [CLS, *tokenizer.encode("学而abc，学"), SEP]
    batch = batch_of([ids], [tokenizer.word_starts[ids]])
    words = find_words(batch, MaskingOptions(2, 0.15, 3))
    assert words.bounds.tolist() == [[0, 1, 2, 4, 5, 6]]  # "abc" has two pieces.
