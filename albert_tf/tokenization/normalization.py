# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Normalizes text before tokenization, with or without character offsets.

`normalize` is google-research/albert's tokenization.preprocess_text. `AlignedText` takes the same
steps one by one and keeps track of the original characters behind each character.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable


@functools.cache
def _combining_candidates() -> re.Pattern[str]:
    """Returns a pattern for the basic plane's combining characters and for all other planes.

    `re` looks up a basic-plane character in one table, but would try the few ranges of combining
    characters beyond that plane one by one for each character of the text.
    """
    combining = "".join(chr(c) for c in range(0x10000) if unicodedata.combining(chr(c)))
    return re.compile(f"[{combining}\U00010000-\U0010ffff]")


def _drop_if_combining(match: re.Match[str]) -> str:
    return "" if unicodedata.combining(match.group()) else match.group()


def normalize(text: str, lower_case: bool, strip_accents: bool) -> str:
    """Collapses whitespace and applies NFKD; drops combining characters and lower-cases on demand.

    Source: google-research/albert tokenization.preprocess_text.
    """
    text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        if strip_accents and not text.isascii():
            text = _combining_candidates().sub(_drop_if_combining, text)
    return text.lower() if lower_case else text


@dataclasses.dataclass(frozen=True)
class AlignedText:
    """A normalized text; its i-th character stands for the original span [starts[i], ends[i]).

    Neither list ever decreases.
    """

    text: str
    starts: list[int]
    ends: list[int]

    @classmethod
    def unchanged(cls, text: str) -> AlignedText:
        """Returns the original text, where each character stands for itself."""
        return cls(text, list(range(len(text))), list(range(1, len(text) + 1)))

    def _select(self, text: str, sources: list[int]) -> AlignedText:
        """Returns `text`, given that its i-th character comes from character sources[i]."""
        return AlignedText(text, [self.starts[i] for i in sources], [self.ends[i] for i in sources])

    def collapse_whitespace(self) -> AlignedText:
        """Does " ".join(text.split()); each space stands for the first one of its run."""
        sources: list[int] = []
        for word in re.finditer(r"\S+", self.text):
            if sources:
                sources.append(sources[-1] + 1)
            sources += range(*word.span())
        return self._select(" ".join(self.text.split()), sources)

    def decompose(self, form: str) -> AlignedText:
        """Applies NFD or NFKD; each part of a decomposed character stands for all of it."""
        if self.text.isascii():
            return self
        # Canonical ordering only permutes a letter's combining characters among themselves.
        sources = [
            i
            for i, character in enumerate(self.text)
            for _ in unicodedata.normalize(form, character)
        ]
        return self._select(unicodedata.normalize(form, self.text), sources)

    def drop(self, is_dropped: Callable[[str], object]) -> AlignedText:
        """Drops some characters; their spans go to the characters before them."""
        kept = [i for i, character in enumerate(self.text) if not is_dropped(character)]
        starts = [self.starts[i] for i in kept]
        ends = [self.ends[j - 1] for _, j in zip(kept, [*kept[1:], len(self.text)])]
        return AlignedText("".join([self.text[i] for i in kept]), starts, ends)

    def drop_combining(self) -> AlignedText:
        """Drops combining characters."""
        return self if self.text.isascii() else self.drop(unicodedata.combining)

    def lower(self) -> AlignedText:
        """Lower-cases the text as a whole, as a final sigma depends on its neighbours."""
        lowered = self.text.lower()
        if len(lowered) == len(self.text):
            return AlignedText(lowered, self.starts, self.ends)
        sources = [i for i, character in enumerate(self.text) for _ in character.lower()]
        return self._select(lowered, sources)

    def normalize(self, lower_case: bool, strip_accents: bool) -> AlignedText:
        """Does the same as the function `normalize`."""
        aligned = self.collapse_whitespace().decompose("NFKD")
        if strip_accents:
            aligned = aligned.drop_combining()
        return aligned.lower() if lower_case else aligned

    def offsets(
        self, pieces: Iterable[tuple[int, int, int]]
    ) -> tuple[list[int], list[int], list[int]]:
        """Turns pieces (id, begin and end in this text) into ids, and original starts and ends."""
        pieces = list(pieces)
        spans = [self._span(begin, end) for _, begin, end in pieces]
        return [i for i, _, _ in pieces], [start for start, _ in spans], [end for _, end in spans]

    def _span(self, begin: int, end: int) -> tuple[int, int]:
        """Returns the original span of text[begin:end]; if begin == end, one before text[begin]."""
        if begin < end:
            return self.starts[begin], self.ends[end - 1]
        position = self.starts[begin] if begin < len(self.text) else max(self.ends[-1:], default=0)
        # Between two parts of one character it is not empty, so that spans never go backwards.
        return position, max(position, self.ends[begin - 1]) if begin else position
