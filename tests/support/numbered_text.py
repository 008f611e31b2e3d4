# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Random texts of words that are numbers, as compact records store them."""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_tf.data import records
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

    def columns(self, length: int) -> dict[str, np.ndarray]:
        """Returns the features of all records, [records, *shape], padded with 0."""
        ids, starts = np.zeros((2, len(self.ids), length), np.int32)
        for row, (text, begins) in enumerate(zip(self.ids, self.starts)):
            ids[row, : len(text)], starts[row, : len(text)] = text, begins
        columns = ids.astype(np.uint16), np.packbits(starts, axis=1), self.lengths
        names = "text_ids", "word_starts", "segment_lengths"
        return {n: np.concatenate([column] * self.times) for n, column in zip(names, columns)}

    def serialized(self, length: int) -> list[bytes]:
        """Returns the records."""
        features = records.compact_features(length, VOCAB)
        sizes = np.tile([len(ids) for ids in self.ids], self.times).tolist()
        columns = self.columns(length)
        columns["text_ids"] = [ids[:n] for ids, n in zip(columns["text_ids"], sizes)]
        columns["word_starts"] = [b[: -(-n // 8)] for b, n in zip(columns["word_starts"], sizes)]
        return records.encode_examples(columns, features)
