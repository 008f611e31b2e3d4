# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Text normalisation before tokenization, alone and with character offsets kept.

`normalize` is google-research/albert's tokenization.preprocess_text: whitespace collapsed, NFKD,
combining characters dropped, lower-cased. `AlignedText` does the same steps one by one and
remembers which original characters each character came from.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable


@functools.lru_cache(maxsize=1)
def _combining_candidates() -> re.Pattern[str]:
    """Matches the combining characters of the basic plane and everything beyond it.

    A class of basic-plane characters is one table look-up in `re`; the few ranges of combining
    characters beyond would be tried one by one for every character of the text.
    """
    combining = "".join(chr(c) for c in range(0x10000) if unicodedata.combining(chr(c)))
    return re.compile(f"[{combining}\U00010000-\U0010ffff]")


def _drop_if_combining(match: re.Match[str]) -> str:
    return "" if unicodedata.combining(match.group()) else match.group()


def normalize(text: str, lower_case: bool, strip_accents: bool) -> str:
    """Collapses whitespace, applies NFKD, then drops combining characters and lower-cases if told.

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
    """A text and, for each of its characters, the original span [starts[i], ends[i])."""

    text: str
    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, text: str) -> AlignedText:
        """The original text: every character stands for itself."""
        return cls(text, list(range(len(text))), list(range(1, len(text) + 1)))

    def _select(self, text: str, sources: list[int]) -> AlignedText:
        """`text`, whose i-th character comes from this text's character sources[i]."""
        return AlignedText(text, [self.starts[i] for i in sources], [self.ends[i] for i in sources])

    def collapse_whitespace(self) -> AlignedText:
        """Same text as " ".join(text.split()); a joining space stands for the run's first space."""
        sources: list[int] = []
        pending_space = -1
        for i, character in enumerate(self.text):
            if character.isspace():
                if pending_space < 0:
                    pending_space = i
                continue
            if pending_space >= 0 and sources:
                sources.append(pending_space)
            pending_space = -1
            sources.append(i)
        return self._select(" ".join(self.text.split()), sources)

    def decompose(self, form: str) -> AlignedText:
        """NFD or NFKD. Every part of a decomposed character stands for the whole character."""
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
        """Without some characters, whose spans go to the character before them."""
        characters: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for character, start, end in zip(self.text, self.starts, self.ends):
            if not is_dropped(character):
                characters.append(character)
                starts.append(start)
                ends.append(end)
            elif ends:
                ends[-1] = max(ends[-1], end)
        return AlignedText("".join(characters), starts, ends)

    def drop_combining(self) -> AlignedText:
        """Without combining characters."""
        return self if self.text.isascii() else self.drop(unicodedata.combining)

    def lower(self) -> AlignedText:
        """str.lower() of the whole text: a final sigma depends on its neighbours."""
        lowered = self.text.lower()
        if len(lowered) == len(self.text):
            return AlignedText(lowered, self.starts, self.ends)
        return self._select(
            lowered, [i for i, character in enumerate(self.text) for _ in character.lower()]
        )

    def normalize(self, lower_case: bool, strip_accents: bool) -> AlignedText:
        """Same text as the function `normalize`."""
        aligned = self.collapse_whitespace().decompose("NFKD")
        if strip_accents:
            aligned = aligned.drop_combining()
        return aligned.lower() if lower_case else aligned

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The original span of text[begin:end]; if that is empty, a place before text[begin]."""
        if begin < end:
            return self.starts[begin], max(self.ends[begin:end])
        position = self.starts[begin] if begin < len(self.text) else max(self.ends, default=0)
        # Not empty between two parts of one character, so that spans never go backwards.
        return position, max(position, self.ends[begin - 1]) if begin else position
