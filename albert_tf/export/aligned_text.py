# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Normalised text with the positions of its characters in the original, in TensorFlow."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.export.text_graph import (
    character_class,
    drop_combining,
    lower,
    normalize,
    spaced_words,
    valid_utf8,
)
from albert_tf.tokenization import wordpiece


class AlignedTextGraph:
    """As albert_tf.tokenization.normalization.AlignedText, for string [B].

    Attributes:
      text: the normalised texts, string [B].
    """

    def __init__(
        self,
        text: tf.Tensor,
        characters: tf.RaggedTensor,
        sizes: tf.Tensor,
        is_boundary: tf.Tensor,
    ) -> None:
        """Aligns the texts; see `align_normalized` and `align_words`.

        Args:
          text: the normalised texts, string [B].
          characters: of the original texts, string [B, (characters)]; N in all.
          sizes: int64 [N]: the bytes of `text` that each character became.
          is_boundary: bool [N]: False for a dropped character that belongs to the one before it.
        """
        self.text = text
        # The end of each character, in bytes of `text`, with all texts concatenated.
        self._byte_limits = tf.cumsum(sizes)
        bytes_before = tf.concat([tf.zeros([1], tf.int64), self._byte_limits], axis=0)
        self._first_byte = tf.gather(bytes_before, characters.row_starts())
        self._first, self._limit = characters.row_starts(), characters.row_limits()
        # A dropped accent belongs to the last part of the letter before it.
        self._owners = tf.where(is_boundary)[:, 0]

    def spans(
        self, row: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the start and end, in original characters, of bytes [begins, ends) of `text`.

        Args:
          row: int64 [N], indices of texts.
          begins, ends: int64 [N].

        Returns:
          int64 [N] each: the first character, and the one after the last.
        """
        shift = tf.gather(self._first_byte, row)
        first, limit = tf.gather(self._first, row), tf.gather(self._limit, row)

        def character(byte: tf.Tensor) -> tf.Tensor:
            index = tf.searchsorted(self._byte_limits, byte, side="right", out_type=tf.int64)
            return tf.minimum(index, limit)

        start, last = character(begins + shift), character(ends + shift - 1)
        rank = tf.searchsorted(self._owners, last, side="right", out_type=tf.int64)
        total = tf.size(self._byte_limits, tf.int64)
        following = tf.gather(tf.concat([self._owners, [total]], axis=0), rank)
        following = tf.minimum(following, limit)
        byte_limits = tf.concat([self._byte_limits, [0]], axis=0)
        is_whole = tf.gather(byte_limits, last) == ends + shift
        end = tf.where(is_whole, following, last + 1)
        # An empty range is empty, or between two parts of one character that character.
        end = tf.where(begins < ends, end, tf.where(begins > 0, tf.maximum(start, end), start))
        return start - first, end - first


def align_normalized(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> AlignedTextGraph:
    """Aligns string [B] with the result of `text_graph.normalize`.

    Each character is also normalised alone, to get its number of bytes. The text is normalised as a
    whole, because the form of a final sigma, but not its size, depends on its neighbours.
    """
    characters = tf.strings.unicode_split(valid_utf8(texts), "UTF-8")
    values = characters.values
    is_space = tf.strings.regex_full_match(values, f"[{character_class(str.isspace)}]")
    values = tf_text.normalize_utf8(values, "NFKD")
    if strip_accents:
        values = drop_combining(values)
    if lower_case:
        values = lower(values)
    sizes = tf.where(
        is_space,
        tf.cast(_joins(is_space, characters.row_starts(), characters.value_rowids()), tf.int64),
        tf.cast(tf.strings.length(values), tf.int64),
    )
    text = normalize(texts, lower_case, strip_accents)
    return AlignedTextGraph(text, characters, sizes, (sizes > 0) | is_space)


def align_words(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> AlignedTextGraph:
    """Aligns string [B] with the result of `text_graph.spaced_words`, in the same way.

    A dropped character at the beginning of a word belongs to no other.
    """
    characters = tf.strings.unicode_split(valid_utf8(texts), "UTF-8")
    values = characters.values
    is_space = tf.strings.regex_full_match(values, f"[{wordpiece.SPACES}]")
    is_ideograph = tf.strings.regex_full_match(values, f"[{wordpiece.IDEOGRAPHS}]")
    # A character alone becomes what it becomes in its text, with the spaces around an ideograph.
    sizes = tf.cast(tf.strings.length(spaced_words(values, lower_case, strip_accents)), tf.int64)
    # An ideograph is a word, so what follows it begins another.
    after_ideograph = tf.concat([[True], is_ideograph], axis=0)[:-1]
    is_boundary = (sizes > 0) | is_space | after_ideograph
    text = spaced_words(texts, lower_case, strip_accents)
    return AlignedTextGraph(text, characters, sizes, is_boundary)


def _joins(is_space: tf.Tensor, row_starts: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Marks the first space of each run between two words, which the normalised text keeps."""
    position = tf.range(tf.size(row, tf.int64))
    after_space = tf.concat([[True], is_space], axis=0)[:-1]
    is_first = position == tf.gather(row_starts, row)
    words = tf.where(is_space, tf.constant(-1, tf.int64), position)
    last_word = tf.math.unsorted_segment_max(words, row, tf.size(row_starts))
    return is_space & ~is_first & ~after_space & (position < tf.gather(last_word, row))
