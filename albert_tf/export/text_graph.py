# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Text normalisation as TensorFlow operations, equal to albert_tf.tokenization.normalization.

Character classes are made from Python's Unicode tables when a graph is built, so that they are
those of the host's tokenizer. NFD, NFKD and lower-casing follow the tables inside TensorFlow, which
may be those of an earlier Unicode version.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable

import tensorflow as tf
import tensorflow_text as tf_text


@functools.cache
def character_class(is_member: Callable[[str], object]) -> str:
    """The members of a set of characters as ranges for a regular expression's class (RE2)."""
    ranges: list[list[int]] = []
    for point in range(sys.maxunicode + 1):
        # Surrogates are no characters, and not to be written in UTF-8.
        if 0xD800 <= point <= 0xDFFF or not is_member(chr(point)):
            continue
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces what is not UTF-8 by U+FFFD: the operations below refuse it."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def drop_combining(texts: tf.Tensor) -> tf.Tensor:
    """Drops the characters of non-zero combining class."""
    return tf.strings.regex_replace(texts, f"[{character_class(unicodedata.combining)}]", "")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """str.lower of UTF-8 strings."""
    # The operation takes NUL for the end of a string. A noncharacter stands in for it meanwhile.
    texts = tf.strings.regex_replace(texts, r"\x{0}", "\U0010ffff")
    texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, r"\x{10ffff}", "\0")


def normalize(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """`normalize` of albert_tf.tokenization.normalization, for a tensor of UTF-8 strings."""
    texts = valid_utf8(texts)
    texts = tf.strings.regex_replace(texts, f"[{character_class(str.isspace)}]+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    texts = tf_text.normalize_utf8(texts, "NFKD")
    if strip_accents:
        texts = drop_combining(texts)
    return lower(texts) if lower_case else texts


def split_words(
    texts: tf.Tensor,
    spaces: str,
    ideographs: str,
    is_dropped: Callable[[str], object],
    is_punctuation: Callable[[str], object],
    lower_case: bool,
    strip_accents: bool,
) -> tf.RaggedTensor:
    """BERT's basic tokenization of UTF-8 strings [B] into words [B, (words)].

    Args:
      texts: string [B].
      spaces: what separates words, written as in a regular expression's class.
      ideographs: characters that are words of their own, written so.
      is_dropped: tells characters that are cleaned away.
      is_punctuation: tells further characters that are words of their own.
      lower_case: whether words are lower-cased.
      strip_accents: whether words lose combining characters, after NFD.
    """
    # Spaces first: some of them are control characters, which are dropped.
    texts = tf.strings.regex_replace(valid_utf8(texts), f"[{spaces}]", " ")
    texts = tf.strings.regex_replace(texts, f"([{ideographs}])", r" \1 ")
    texts = tf.strings.regex_replace(texts, f"[{character_class(is_dropped)}]", "")
    if lower_case:
        texts = lower(texts)
    if strip_accents:
        texts = drop_combining(tf_text.normalize_utf8(texts, "NFD"))
    kept = f"[{character_class(is_punctuation)}]"
    return tf_text.regex_split(texts, f" |{kept}", kept)
