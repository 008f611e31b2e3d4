# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Text normalisation as TensorFlow operations, equal to albert_tf.tokenization.normalization.

Character classes are computed from Python's Unicode tables when a graph is built, as in the host's
tokenizer. NFD, NFKD and lower-casing use TensorFlow's tables, which may be of an earlier Unicode
version.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.tokenization import wordpiece


@functools.cache
def character_class(is_member: Callable[[str], object]) -> str:
    """Returns the members of a set of characters as ranges for a character class in RE2."""
    ranges: list[list[int]] = []
    for point in range(sys.maxunicode + 1):
        # Surrogates are not characters, and have no UTF-8 encoding.
        if 0xD800 <= point <= 0xDFFF or not is_member(chr(point)):
            continue
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces invalid UTF-8, which the operations below refuse, with U+FFFD."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def drop_combining(texts: tf.Tensor) -> tf.Tensor:
    """Drops the characters of non-zero combining class."""
    return tf.strings.regex_replace(texts, f"[{character_class(unicodedata.combining)}]", "")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """str.lower of UTF-8 strings."""
    # The operation stops at NUL, so a noncharacter replaces it temporarily.
    texts = tf.strings.regex_replace(texts, r"\x{0}", "\U0010ffff")
    texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, r"\x{10ffff}", "\0")


def normalize(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Applies `normalize` of albert_tf.tokenization.normalization to a tensor of UTF-8 strings."""
    texts = valid_utf8(texts)
    texts = tf.strings.regex_replace(texts, f"[{character_class(str.isspace)}]+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    texts = tf_text.normalize_utf8(texts, "NFKD")
    if strip_accents:
        texts = drop_combining(texts)
    return lower(texts) if lower_case else texts


def spaced_words(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Takes the steps of BERT's basic tokenization that change characters.

    Args:
      texts: string [B].
      lower_case: whether to lower-case words.
      strip_accents: whether to drop combining characters, after NFD.

    Returns:
      string [B], with each white space a space, and two spaces around each ideograph.
    """
    # Spaces first: some of them are control characters, which are dropped below.
    texts = tf.strings.regex_replace(valid_utf8(texts), f"[{wordpiece.SPACES}]", " ")
    texts = tf.strings.regex_replace(texts, f"([{wordpiece.IDEOGRAPHS}])", r" \1 ")
    texts = tf.strings.regex_replace(texts, f"[{character_class(wordpiece.is_dropped)}]", "")
    if lower_case:
        texts = lower(texts)
    if strip_accents:
        texts = drop_combining(tf_text.normalize_utf8(texts, "NFD"))
    return texts


def split_words(
    texts: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Splits strings [B], from `spaced_words`, at spaces and around punctuation.

    Returns:
      The words, string [B, (words)], and their starts and ends in bytes, int64.
    """
    punctuation = f"[{character_class(wordpiece.is_punctuation)}]"
    return tf_text.regex_split_with_offsets(texts, f" |{punctuation}", punctuation)
