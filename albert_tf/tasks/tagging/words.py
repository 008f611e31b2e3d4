# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits texts into words, with TensorFlow, so that a SavedModel has the same code."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.tokenization.graph import valid_utf8

#: Between words; and the characters that are words of their own: punctuation, symbols, ideographs.
_SPACES, _ALONE = r"[\p{Z}\p{Cc}]", r"[\p{P}\p{S}\p{Han}]"


@tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
def word_spans(texts: tf.Tensor) -> list[tf.RaggedTensor]:
    """Returns the words of string [B], and the start and end of each in characters of its text.

    Words are separated by whitespace. Punctuation, symbols and ideographs are words of their own.
    """
    # The operation would stop at NUL.
    texts = tf.strings.regex_replace(valid_utf8(texts), r"\x{0}", " ")
    ends = f"{_SPACES}|{_ALONE}"
    parts = tf_text.regex_split(texts, ends, ends)
    sizes = tf.strings.length(parts.values, "UTF8_CHAR")
    before = tf.cumsum(tf.strings.length(texts, "UTF8_CHAR"), exclusive=True)
    starts = tf.cumsum(sizes, exclusive=True) - tf.gather(before, parts.value_rowids())
    is_word = parts.with_values(~tf.strings.regex_full_match(parts.values, _SPACES))
    columns = parts.values, starts, starts + sizes
    return [tf.ragged.boolean_mask(parts.with_values(x), is_word) for x in columns]


def split_words(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Returns the characters [start, end) of the words of each text; see `word_spans`."""
    _, starts, ends = word_spans(tf.constant(texts))
    return [[*zip(*row)] for row in zip(starts.to_list(), ends.to_list())]
