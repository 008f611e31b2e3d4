# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Random texts of words that are numbers, as compact records store them."""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_tf.data import records
from data_prep.assembly import Batch
from tests.support.builders import write_tokenizer

FIRST_TEXT_ID, VOCAB = 5, 65


def numbered_tokenizer(folder):
    """Writes a vocabulary of the words w0, w1, … to a folder, and returns its tokenizer."""
    return write_tokenizer(folder, [f"w{i}" for i in range(VOCAB - FIRST_TEXT_ID)])


@dataclasses.dataclass
class Text:
    """Texts of two segments, with word starts that do not depend on the ids.

    The list of texts is repeated `times` times.
    """

    ids: list[np.ndarray]
    starts: list[np.ndarray]
    lengths: np.ndarray
    times: int = 1

    @classmethod
    def random(cls, n, rng, longest, shortest=4, times=1):
        sizes = rng.integers(shortest, longest + 1, n)
        first = 1 + rng.integers(0, sizes - 1)
        return cls(
            [rng.integers(FIRST_TEXT_ID, VOCAB, size) for size in sizes],
            [rng.random(size) < 0.8 for size in sizes],
            np.stack([first, sizes - first], 1),
            times,
        )

    def serialized(self, length):
        columns = {
            "text_ids": self.ids,
            "word_starts": [np.packbits(starts) for starts in self.starts],
            "segment_lengths": self.lengths,
        }
        examples = records.encode_examples(columns, records.compact_features(length, VOCAB))
        return examples * self.times

    def batch(self, length, swapped):
        """Returns what the builder masks, given which of the repeated texts are swapped."""
        layouts = [dataclasses.astuple(self._lay_out(length, order)) for order in (False, True)]
        number = np.tile(np.arange(len(self.ids)), self.times)
        return Batch(*(np.stack(pair)[swapped.astype(int), number] for pair in zip(*layouts)))

    def _lay_out(self, length, swapped):
        ids, is_text, starts = np.zeros((3, len(self.ids), length), np.int32)
        a, b = self.lengths.T[::-1] if swapped else self.lengths.T
        for row, (text, begins) in enumerate(zip(self.ids, self.starts)):
            if swapped:
                text, begins = np.roll(text, a[row]), np.roll(begins, a[row])
            size = a[row] + b[row] + (3 if b[row] else 2)
            special = np.unique([0, a[row] + 1, size - 1])
            places = np.setdiff1d(np.arange(size), special)
            ids[row, special], starts[row, special] = 3, 1
            ids[row, 0] = 2
            ids[row, places], starts[row, places], is_text[row, places] = text, begins, 1
        return Batch(ids, is_text > 0, starts > 0, a, b, a + b + np.where(b > 0, 3, 2))
