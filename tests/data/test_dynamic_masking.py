# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dynamic masking has the builder's distribution, and is a function of seed and position."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.dynamic_masking import DynamicMasking, RowNumbers
from albert_tf.data.masking_options import MASK_SHARE, MaskingOptions
from albert_tf.data.record_errors import check_columns
from data_prep.assembly import Batch
from data_prep.masking import mask
from tests.support.cases import slow
from tests.support.numbered_text import FIRST_TEXT_ID, VOCAB, Text, numbered_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return numbered_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@dataclasses.dataclass
class Drawn:
    """A masked batch as arrays, and the same texts unmasked."""

    columns: dict[str, np.ndarray]
    unmasked: Batch

    @property
    def used(self):
        return self.columns["masked_lm_weights"] > 0

    @property
    def predicted(self):
        return predicted_of(self.columns["masked_lm_positions"], self.used, self.unmasked)


def predicted_of(positions, used, batch):
    """Returns which tokens are predicted, bool [n, length]."""
    predicted = np.zeros(batch.input_ids.shape, bool)
    predicted[np.nonzero(used)[0], positions[used]] = True
    return predicted


def draw(text, length, options, tokenizer, swap=True):
    masking = DynamicMasking(records.compact_features(length, VOCAB), options, tokenizer, swap=swap)
    columns = masking.draw(tf.constant(text.serialized(length)), 1, 0)
    columns = {name: value.numpy() for name, value in columns.items()}
    return Drawn(columns, text.batch(length, columns["next_sentence_labels"] > 0))


def draw_offline(drawn, options):
    """Returns the builder's masks for the same sequences, bool [n, length]."""
    rng = np.random.default_rng(1)
    result = mask(drawn.unmasked, options, 4, np.arange(FIRST_TEXT_ID, VOCAB, dtype=np.int32), rng)
    return predicted_of(result.positions, result.weights > 0, drawn.unmasked)


def assert_same_distribution(some, others):
    """Applies a chi-square test to two arrays of small natural numbers, at about five sigma."""
    cells = 1 + max(np.max(some), np.max(others))
    counts = np.array([np.bincount(x, minlength=cells) for x in (some, others)])
    rare = counts.sum(0) < 20
    counts = np.concatenate([counts[:, ~rare], counts[:, rare].sum(1, keepdims=True)], 1)
    counts = counts[:, counts.any(0)]
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    freedom = counts.shape[1] - 1
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert freedom > 0
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom) + 5


def assert_uniform(values, cells):
    counts = np.bincount(values, minlength=cells)
    expected = len(values) / cells
    assert len(counts) == cells and expected > 20
    assert ((counts - expected) ** 2 / expected).sum() < cells + 5 * np.sqrt(2 * cells)


def word_numbers(batch):
    """Returns int [n, length]: numbers of the words within each row; words end with segments."""
    starts = batch.is_text & batch.piece_starts
    starts[:, 1] = True
    rows = np.flatnonzero(batch.b_lengths > 0)
    starts[rows, batch.a_lengths[rows] + 2] = True
    return np.cumsum(starts, 1) - 1


def run_lengths(predicted, batch):
    """Returns the lengths, in words, of the runs of predicted words in a segment."""
    lengths = []
    words = word_numbers(batch)
    for row in range(len(predicted)):
        bounds = 1, batch.a_lengths[row] + 1, batch.a_lengths[row] + 2, batch.lengths[row] - 1
        for begin, end in (bounds[:2], bounds[2:]):
            numbers = np.unique(words[row, begin:end][predicted[row, begin:end]])
            runs = np.split(numbers, 1 + np.flatnonzero(np.diff(numbers) != 1))
            lengths += [len(run) for run in runs if len(run)]
    return np.array(lengths)


@pytest.mark.parametrize(
    "case", [(True, True), (False, False), *slow((True, False), (False, True))]
)
def test_all_sets_of_masked_words_are_as_likely_as_in_the_builder(tokenizer, case):
    favor_shorter, whole_words = case
    # Six words of 1, 2, 1 | 3, 1, 1 pieces: few enough to count every set of them.
    text = Text(
        [np.arange(FIRST_TEXT_ID, FIRST_TEXT_ID + 9)],
        [np.array([1, 1, 0, 1, 1, 0, 0, 1, 1])],
        np.array([[4, 5]]),
        times=50_000,
    )
    options = MaskingOptions(4, 0.35, 3, favor_shorter, whole_words)
    drawn = draw(text, 12, options, tokenizer, swap=False)
    codes = [
        (predicted * (1 << np.arange(12))).sum(1)
        for predicted in (drawn.predicted, draw_offline(drawn, options))
    ]
    assert_same_distribution(*codes)
    assert len(np.unique(codes[0])) > 10


@pytest.mark.parametrize("favor_shorter", [True, *slow(False)])
def test_spans_are_as_long_as_in_the_builder(tokenizer, favor_shorter):
    # Three of forty words: they form one, two or three runs, depending on the first spans.
    words = np.full(40, FIRST_TEXT_ID)
    text = Text([words], [words > 0], np.array([[20, 20]]), times=100_000)
    options = MaskingOptions(3, favor_shorter_ngram=favor_shorter)
    drawn = draw(text, 43, options, tokenizer, swap=False)
    runs = [
        (predicted[:, 1:] & ~predicted[:, :-1]).sum(1)
        for predicted in (drawn.predicted, draw_offline(drawn, options))
    ]
    assert_same_distribution(*runs)


@pytest.mark.parametrize("case", [(125, 20, 3), *slow((40, 3, 1), (60, 9, 5))])
def test_runs_positions_and_numbers_of_masks_are_distributed_as_in_the_builder(tokenizer, case):
    longest, predictions, ngram = case
    text = Text.random(400, np.random.default_rng(0), longest, shortest=8, times=15)
    options = MaskingOptions(predictions, 0.15, ngram)
    drawn = draw(text, longest + 3, options, tokenizer)
    offline = draw_offline(drawn, options)
    predicted = drawn.predicted
    batch = drawn.unmasked
    assert_same_distribution(run_lengths(predicted, batch), run_lengths(offline, batch))
    left = [options.budgets(batch.lengths) - p.sum(1) for p in (predicted, offline)]
    assert min(map(np.min, left)) >= 0
    if np.max(left) > 0:
        assert_same_distribution(*left)
    # Each position by itself, as neighbours in a span depend on each other.
    share = (predicted.sum(0) + offline.sum(0)) / (2 * len(predicted))
    error = np.sqrt(2 * share * (1 - share) / len(predicted)) + 1e-9
    difference = (predicted.sum(0) - offline.sum(0)) / len(predicted)
    assert np.abs(difference / error).max() < 4.5


def test_replacements_are_eighty_ten_ten_and_random_ones_uniform(tokenizer):
    text = Text.random(1000, np.random.default_rng(1), 125, times=20)
    drawn = draw(text, 128, MaskingOptions(20), tokenizer)
    used, columns = drawn.used, drawn.columns
    rows, positions = np.nonzero(used)[0], columns["masked_lm_positions"][used]
    labels = columns["masked_lm_ids"][used]
    np.testing.assert_array_equal(labels, drawn.unmasked.input_ids[rows, positions])
    put = columns["input_word_ids"][rows, positions]
    error = 4 / np.sqrt(len(put))
    words = VOCAB - FIRST_TEXT_ID
    by_chance = 0.1 / words  # A random piece may equal the original.
    assert (put == 4).mean() == pytest.approx(0.8, abs=0.4 * error)
    assert (put == labels).mean() == pytest.approx(0.1 + by_chance, abs=0.3 * error)
    random = put[(put != 4) & (put != labels)]
    assert random.min() >= FIRST_TEXT_ID
    assert_uniform(random - FIRST_TEXT_ID, words)
    untouched = ~drawn.predicted
    np.testing.assert_array_equal(
        columns["input_word_ids"][untouched], drawn.unmasked.input_ids[untouched]
    )


def test_without_a_share_for_random_pieces_the_rest_is_kept(tokenizer, monkeypatch):
    """By default both shares are 0.1, so no statistics tell them apart."""
    monkeypatch.setattr("albert_tf.data.dynamic_masking.KEEP_SHARE", 1 - MASK_SHARE)
    drawn = draw(Text.random(200, np.random.default_rng(1), 60), 63, MaskingOptions(9), tokenizer)
    ids, original = drawn.columns["input_word_ids"], drawn.unmasked.input_ids
    assert (ids == original)[drawn.predicted].sum() > 100
    assert ((ids == original) | (ids == tokenizer.mask_id)).all()


def test_batches_have_the_form_of_masked_records(tokenizer):
    text = Text.random(500, np.random.default_rng(2), 60)
    text.lengths[:50] = np.stack([text.lengths[:50].sum(1), np.zeros(50, int)], 1)
    drawn = draw(text, 64, MaskingOptions(9), tokenizer)
    columns, batch = drawn.columns, drawn.unmasked
    np.testing.assert_array_equal(columns["input_mask"], batch.input_mask)
    np.testing.assert_array_equal(columns["input_type_ids"], batch.segment_ids)
    assert not columns["next_sentence_labels"][:50].any()
    # The checks of verify_records.py.
    ids, segments = columns["input_word_ids"], columns["input_type_ids"]
    as_record = {"input_ids": ids, "segment_ids": segments, **columns}
    for fault, rows in check_columns(as_record, tokenizer):
        assert not rows.any(), fault
    assert drawn.used.sum(1).max() == 9
    assert batch.is_text[drawn.predicted].all() and drawn.predicted.sum() == drawn.used.sum()
    words = word_numbers(batch) + np.arange(500)[:, None] * 64
    masked, seen = words[drawn.predicted], words[batch.is_text & ~drawn.predicted]
    assert not np.intersect1d(masked, seen).size  # Words are masked whole.
    for name, value in columns.items():
        assert value.dtype == (np.float32 if name == "masked_lm_weights" else np.int32)


@pytest.mark.parametrize("segments", [1, 2])
def test_a_shorter_sequence_is_a_random_part_of_the_text(tokenizer, segments):
    text = Text.random(40, np.random.default_rng(6), 61, times=50)
    if segments == 1:
        text.lengths = np.stack([text.lengths.sum(1), np.zeros(40, int)], 1)
    text.ids = [FIRST_TEXT_ID + np.arange(len(ids)) % 60 for ids in text.ids]
    features, short = records.compact_features(64, VOCAB), 24
    # Every token is predicted, so that the labels are the text.
    options = MaskingOptions(64, 1.0, ngram=1)
    masking = DynamicMasking(features, options, tokenizer, swap=True, length=short)
    assert masking.options.max_predictions_per_seq == 24 and masking.is_part
    columns = masking.draw(tf.constant(text.serialized(64)), 1, 0)
    drawn = {name: value.numpy() for name, value in columns.items()}
    sizes = np.tile([len(ids) for ids in text.ids], 50)
    kept = np.minimum(sizes, short - 1 - segments)
    np.testing.assert_array_equal(drawn["input_mask"].sum(1), kept + 1 + segments)
    np.testing.assert_array_equal(drawn["masked_lm_weights"].sum(1), kept)
    assert not drawn["next_sentence_labels"].any()
    second = kept // 2 + 1 if segments == 2 else np.zeros_like(kept)  # With its [SEP].
    np.testing.assert_array_equal(drawn["input_type_ids"].sum(1), second)
    labels = drawn["masked_lm_ids"] - FIRST_TEXT_ID
    in_use = drawn["masked_lm_weights"] > 0
    steps = np.diff(labels, axis=1)[in_use[:, 1:]]
    assert np.isin(steps, [1, -59]).all()  # Consecutive tokens.
    longest = int(np.argmax(sizes[:40]))
    begins = labels[longest::40, 0]
    assert begins.min() >= 0 and begins.max() <= sizes[longest] - kept[longest]
    assert len(np.unique(begins)) > 15


def test_a_shorter_sequence_is_masked_like_a_record_of_that_length(tokenizer):
    text = Text.random(300, np.random.default_rng(7), 22)
    text.lengths = np.stack([text.lengths.sum(1), np.zeros(300, int)], 1)
    drawn = []
    for stored, predictions in ((24, 4), (64, 10)):
        features = records.compact_features(stored, VOCAB)
        masking = DynamicMasking(features, MaskingOptions(predictions), tokenizer, False, 24)
        columns = masking.draw(tf.constant(text.serialized(stored)), 1, 0)
        drawn.append({name: value.numpy() for name, value in columns.items()})
    np.testing.assert_equal(drawn[1], drawn[0])


def test_half_of_the_segments_are_swapped_or_none(tokenizer):
    text = Text.random(200, np.random.default_rng(3), 20, times=20)
    labels = draw(text, 23, MaskingOptions(3), tokenizer).columns["next_sentence_labels"]
    assert labels.mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(4000))
    # Each time at random, not once per record.
    assert_same_distribution(
        labels.reshape(20, 200).sum(0), np.random.default_rng(0).binomial(20, 0.5, 200)
    )
    never = draw(text, 23, MaskingOptions(3), tokenizer, swap=False)
    assert not never.columns["next_sentence_labels"].any()


def test_a_row_of_random_numbers_depends_on_seed_stream_and_row_alone():
    def rows(first, count, seed=1, stream=2):
        numbers = RowNumbers(seed, tf.constant(first, tf.int64), count)
        return numbers.uniform(stream, 6).numpy(), numbers.integers(stream, 6, 9).numpy()

    for whole, part in zip(rows(0, 1000), rows(137, 50)):
        np.testing.assert_array_equal(part, whole[137:187])
    uniform, integers = rows(1 << 40, 20_000)
    assert_uniform((uniform * 50).astype(int).ravel(), 50)
    assert_uniform(integers.ravel(), 9)
    assert np.abs(np.corrcoef(uniform.T) - np.eye(6)).max() < 0.04
    assert np.abs(np.corrcoef(uniform[1:, 0], uniform[:-1, 0])[0, 1]) < 0.04
    for other in ({"seed": 2}, {"stream": 3}):
        assert (rows(0, 100, **other)[0] != rows(0, 100)[0]).all()
