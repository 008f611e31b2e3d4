# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts for the self-check of exports that read text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

#: Words, punctuation, accents, text without spaces, and numbers with commas, which ALBERT's
#: tokenizer treats specially.
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "In 2019, 1,234 naïve readers asked: why so many layers, and so few weights?",
    "Ada wrote the first program in 1843, in London; 子曰：「知之為知之。」 nobody ran it.",
)
QUESTIONS = ("Who jumps over the _ dog?", "How many readers?", "Who wrote it in 1843, and where?")
OPTIONS = ("fox", "the lazy dog", "1,234 readers", "nobody", "London")
_LONG = 40


def text_batches() -> Iterator[tuple[str, list[str]]]:
    """Yields batches of one and of three texts, of one sentence and of many, with their length."""
    for size in (1, len(SENTENCES)):
        yield "a sentence", list(SENTENCES[:size])
        # Numbered, because windows with the same text would have equal scores.
        yield (
            f"{_LONG} sentences",
            [" ".join(f"{number} {text}" for number in range(_LONG)) for text in SENTENCES[:size]],
        )


def as_bytes(texts: Sequence[str]) -> np.ndarray:
    """Returns texts as an array of UTF-8 strings."""
    return np.array([text.encode() for text in texts])
