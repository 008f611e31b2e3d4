# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Windows of texts and of pairs."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf.tasks.windows import text_windows

LENGTHS = np.array([*itertools.product(range(12), range(12))]).T


def popped_lengths(a, b, room):
    """Cuts tokens one by one off the longer text, or off B if the lengths are equal."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def windows_of(length, stride):
    found = text_windows(*LENGTHS, SimpleNamespace(max_seq_length=length, doc_stride=stride))
    return zip(*(values.numpy().tolist() for values in found))


@pytest.mark.parametrize("length", range(5, 20))
def test_without_a_stride_texts_are_cut_as_if_tokens_were_taken_one_by_one(length):
    expected = [
        (row, [0, kept_a], [0, kept_b])
        for row, (a, b) in enumerate(LENGTHS.T.tolist())
        for kept_a, kept_b in [popped_lengths(a, b, length - 2 - (b > 0))]
    ]
    assert [*windows_of(length, None)] == expected


@pytest.mark.parametrize("length", (5, 8, 13))
@pytest.mark.parametrize("stride", (1, 3, 100))
def test_windows_show_all_of_the_text_or_of_the_second_one_beside_the_first(length, stride):
    found = {}
    for row, first, second in windows_of(length, stride):
        found.setdefault(row, []).append((first, second))
    assert len(found) == LENGTHS.shape[1]
    for row, (a, b) in enumerate(LENGTHS.T.tolist()):
        firsts, seconds = zip(*found[row])
        kept, _ = popped_lengths(a, b, length - 2 - (b > 0))
        room = length - 3 - kept if b else length - 2
        if b:
            assert {*map(tuple, firsts)} == {(0, kept)}
        else:
            assert not any(map(any, seconds))
        shown, total = (seconds, b) if b else (firsts, a)
        begins, ends = zip(*shown)
        assert begins == tuple(range(0, begins[-1] + 1, min(stride, room)))
        assert ends == tuple(min(begin + room, total) for begin in begins)
        assert ends[-1] == total and ends[:-1] < (total,)
