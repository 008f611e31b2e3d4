# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np

from albert_tf.data import length_batches as module
from albert_tf.data.length_batches import length_batches


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


def test_progress_is_shown_for_many_batches_only(monkeypatch):
    shown = []

    class Progress:
        def __init__(self, *arguments):
            shown.append(arguments)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, amount):
            shown.append(amount)

    monkeypatch.setattr(module, "Progress", Progress)
    monkeypatch.setattr(module, "_MAX_ROWS", 2)
    list(length_batches([5] * 14, "testing"))
    assert shown == []
    list(length_batches([5] * 15, "testing"))
    assert shown == [("testing", 15, "sequences"), *[2] * 7, 1]
