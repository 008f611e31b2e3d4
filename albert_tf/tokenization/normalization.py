# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Normalizes text before tokenization."""

from __future__ import annotations

import functools
import re
import unicodedata


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


def drop_combining(text: str) -> str:
    """Drops characters of non-zero combining class."""
    return text if text.isascii() else _combining_candidates().sub(_drop_if_combining, text)


def normalize(text: str, lower_case: bool, strip_accents: bool) -> str:
    """Collapses whitespace and applies NFKD; drops combining characters and lower-cases on demand.

    Source: google-research/albert tokenization.preprocess_text.
    """
    text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        if strip_accents:
            text = drop_combining(text)
    return text.lower() if lower_case else text
