# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Normalizes text before tokenization."""

from __future__ import annotations

import unicodedata


def drop_combining(text: str) -> str:
    """Drops characters of non-zero combining class."""
    return "".join(character for character in text if not unicodedata.combining(character))


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
