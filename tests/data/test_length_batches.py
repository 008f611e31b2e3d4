# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Sequences in memory, and batches of similar lengths."""

import numpy as np
import pytest

from albert_tf.data import length_batches as module
from albert_tf.data.context import InputContext
from albert_tf.data.length_batches import NO_NUMBER, Sequences, length_batches, length_buckets
from tests.support.cases import slow

LENGTHS = (4, 8, 16)


def make_sequences(sizes, seed=3, offset=0, **options):
    """Sequences of these lengths, all of whose ids are i + 1 + offset in example i."""
    pairs = ((np.full(size, i + 1 + offset), (size + 1) // 2) for i, size in enumerate(sizes))
    made = Sequences(pairs, 0, {"label_ids": np.arange(len(sizes))}, **options)
    made.lengths = LENGTHS
    return made.reseeded(seed)


def training_labels(source, steps, size, start=0):
    batches = source.train_input_fn(InputContext(size, start)).take(steps)
    return np.stack([batch["label_ids"] for batch in batches])


@pytest.fixture(scope="module")
def sequences():
    """300 sequences of 1 to 16 tokens, and their lengths."""
    sizes = np.random.default_rng(0).integers(1, 17, 300)
    return make_sequences(sizes), sizes


@pytest.fixture(scope="module")
def first_sequences(sequences):
    """Labels of 120 batches of 8."""
    return training_labels(sequences[0], 120, 8)


def check_sequences(batch, sizes):
    """Checks that a batch holds its sequences, padded to the shortest possible length."""
    numbers = batch["label_ids"].numpy()
    length = batch["input_word_ids"].shape[1]
    assert length == next(n for n in LENGTHS if n >= sizes[numbers].max())
    mask = np.arange(length) < sizes[numbers][:, None]
    np.testing.assert_array_equal(batch["input_mask"], mask)
    np.testing.assert_array_equal(batch["input_word_ids"], (numbers[:, None] + 1) * mask)
    second = mask & (np.arange(length) >= (sizes[numbers][:, None] + 1) // 2)
    np.testing.assert_array_equal(batch["input_type_ids"], second)


@pytest.mark.parametrize("pipelines", [1, 2])
def test_each_sequence_is_evaluated_once_among_others_of_similar_length(sequences, pipelines):
    source, sizes = sequences
    numbers = []
    for index in range(pipelines):
        for batch in source.eval_input_fn(InputContext(32, 0, pipelines, index)):
            if pipelines == 1:
                check_sequences(batch, sizes)
            is_real = batch["example_index"] >= 0
            labels, found = batch["label_ids"][is_real], batch["example_index"][is_real]
            np.testing.assert_array_equal(labels, found)
            numbers += found.numpy().tolist()
    assert sorted(numbers) == list(range(300)) and source.num_batches(32) == 10


def test_sequences_are_trained_on_equally_often_in_batches_of_similar_length(sequences):
    source, sizes = sequences
    batches = list(source.train_input_fn(InputContext(4)).take(300))
    for batch in batches:
        check_sequences(batch, sizes)
    numbers = np.concatenate([batch["label_ids"] for batch in batches])
    np.testing.assert_allclose(np.bincount(numbers, minlength=300), 4, atol=1)
    padded = sum(int(np.prod(b["input_mask"].shape)) for b in batches)
    assert padded < 0.75 * len(batches) * 4 * 16
    # Batches of one length do not follow each other.
    lengths = [batch["input_mask"].shape[1] for batch in batches[:64]]
    assert sum(a != b for a, b in zip(lengths, lengths[1:])) > 20


def test_a_chunk_of_batches_is_a_random_part_of_the_data(sequences):
    labels = training_labels(sequences[0], 64, 1)  # 64 of 300 examples, without repetition.
    assert len(set(labels.ravel().tolist())) == 64
    assert 110 < labels.mean() < 190
    other = training_labels(sequences[0].reseeded(4), 64, 1)
    assert len({*labels.ravel().tolist()} & {*other.ravel().tolist()}) < 40


# By default, at the end of the first chunk of batches and in the second one.
@pytest.mark.parametrize("start", [63, 100, *slow(1, 64)])
def test_sequence_batches_start_at_any_step(sequences, first_sequences, start):
    tail = training_labels(sequences[0], 20, 8, start)
    np.testing.assert_array_equal(tail, first_sequences[start : start + 20])


def test_pipelines_share_the_rows_of_each_batch(sequences, first_sequences):
    parts = [
        [b["label_ids"] for b in sequences[0].train_input_fn(InputContext(8, 60, 2, i)).take(9)]
        for i in range(2)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), first_sequences[60:69])


def test_fewer_examples_than_a_batch_are_repeated_in_new_orders():
    labels = training_labels(make_sequences([3, 2, 5]), 64, 6)
    assert {tuple(np.bincount(row, minlength=3)) for row in labels} >= {(2, 2, 2)}
    np.testing.assert_allclose(np.bincount(labels.ravel()), 128, atol=1)


@pytest.mark.parametrize("offset", [0, 70000])
def test_groups_and_numbers_of_tokens_are_padded_too(offset):
    sizes, tags = [2, 4, 1, 3], [[5, 6], [7] * 4, [8], [9] * 3]
    pairs = ((np.full(size, i + 1 + offset), 1) for i, size in enumerate(sizes))
    made = Sequences(pairs, 0, {"x": np.array([0.5, 1.5])}, {"tags": tags}, group=2)
    assert made.longest.tolist() == [4, 3] and made.mean_length == 2.5
    batch = made.batch([1], 4)
    assert batch["input_word_ids"].numpy().tolist() == [
        [[3 + offset, 0, 0, 0], [4 + offset] * 3 + [0]]
    ]
    assert batch["input_type_ids"].numpy().tolist() == [[[0] * 4, [0, 1, 1, 0]]]
    none = NO_NUMBER
    assert batch["tags"].numpy().tolist() == [[[8, none, none, none], [9, 9, 9, none]]]
    assert batch["x"].numpy().tolist() == [1.5]


def test_the_fingerprint_depends_on_all_values_but_not_on_the_seed():
    first = make_sequences([3, 2])
    assert first.fingerprint == make_sequences([3, 2], seed=9).fingerprint
    others = [make_sequences([2, 3]), make_sequences([3, 2], 3, 1), make_sequences([3, 2], group=2)]
    others[-1].lengths = (16,)
    others.append(make_sequences([3, 2]))
    others[-1].lengths = (16,)
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_batches_have_static_shapes_without_length_buckets():
    fixed, context = make_sequences([3, 2, 5]), InputContext(6)
    fixed.lengths = length_buckets(16, pad_to_max=True)
    for dataset in (fixed.train_input_fn(context), fixed.eval_input_fn(context)):
        assert all(spec.shape.is_fully_defined() for spec in dataset.element_spec.values())
        assert dataset.element_spec["input_mask"].shape == [6, 16]
        # Deleting an autotuned iterator would wait for the end of a round of tuning.
        assert dataset.options().autotune.enabled is False


def test_length_buckets_end_with_the_maximum():
    assert length_buckets(100, few=True) == (16, 32, 64, 96, 100)
    assert length_buckets(45) == (*range(4, 32, 2), 32, 36, 40, 44, 45)
    assert length_buckets(16, few=True) == (16,)
    assert length_buckets(512, pad_to_max=True) == (512,)


def test_each_sequence_is_in_one_batch_that_is_long_enough_and_not_too_large():
    lengths = np.random.default_rng(0).integers(2, 200, 1000)
    batches = list(length_batches(lengths, "testing"))
    assert sorted(np.concatenate([rows for rows, _ in batches])) == list(range(1000))
    for rows, length in batches:
        assert lengths[rows].max() <= length < 1.3 * lengths[rows].max() + 4
        assert len(rows) <= module._MAX_ROWS
        assert len(rows) * length <= module._MAX_PIECES
    padding = sum(len(rows) * length for rows, length in batches) / lengths.sum()
    assert padding < 1.25  # In random batches it would be about 2.
    assert len(batches) < 12
    assert list(length_batches([], "testing")) == []


def test_a_sequence_longer_than_a_batch_is_a_batch(monkeypatch):
    monkeypatch.setattr(module, "_MAX_PIECES", 10)
    found = [(rows.tolist(), length) for rows, length in length_batches([4, 30, 5], "testing")]
    assert found == [([1], 30), ([2], 6), ([0], 4)]
