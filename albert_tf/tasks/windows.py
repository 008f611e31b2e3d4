# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cuts long texts into overlapping windows, with TensorFlow, so that a SavedModel can."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf


class Windows(NamedTuple):
    """All windows of a list of questions, in their order; each field is int64 [W].

    A window's sequence is `[CLS] question [SEP] pieces [SEP]`; a position is an index into it. The
    pieces of all contexts are numbered as one list.

    Attributes:
      question: number of the window's question.
      first: number of the window's first piece.
      size: how many pieces it has.
      context_start: position of its first piece.
    """

    question: tf.Tensor
    first: tf.Tensor
    size: tf.Tensor
    context_start: tf.Tensor

    @property
    def pieces(self) -> tf.RaggedTensor:
        """The numbers of each window's pieces, int64 [W, (pieces)]."""
        return tf.ragged.range(self.first, self.first + self.size)


def cut_windows(
    starts: tf.Tensor, lengths: tf.Tensor, query_lengths: tf.Tensor, spec: Any
) -> Windows:
    """Cuts the contexts of questions into windows.

    Windows begin every `doc_stride` pieces, or sooner if that would skip pieces; the last one ends
    with the context. `starts` and `lengths`, int64 [Q], are the number of the first piece, and how
    many pieces, of each question's context; `query_lengths` the pieces of each question;
    `spec` has `max_seq_length` and `doc_stride`. If that is None, only first windows are cut.
    """
    room = spec.max_seq_length - 3 - query_lengths
    if spec.doc_stride:
        stride = tf.minimum(room, spec.doc_stride)
        number = tf.ragged.range(1 + (tf.maximum(lengths - room, 0) + stride - 1) // stride)
        question = number.value_rowids()
        offset = number.values * tf.gather(stride, question)
    else:  # Fewer operations answer one text sooner.
        question, offset = tf.range(tf.size(lengths, tf.int64)), tf.zeros_like(lengths)
    size = tf.minimum(tf.gather(room, question), tf.gather(lengths, question) - offset)
    first = tf.gather(starts, question) + offset
    return Windows(question, first, size, tf.gather(query_lengths, question) + 2)


def text_windows(
    first: tf.Tensor, second: tf.Tensor, spec: Any
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts texts, or the second ones of pairs, into windows; see `cut_windows`.

    Each window of a pair has the first text, which loses its end only if the pair does not fit and
    it is the longer one (google-research/albert classifier_utils._truncate_seq_pair, in closed
    form). `first` and `second`, int64 [B], are the lengths in pieces, 0 for a missing second text.

    Returns:
      The number of each window's text, int64 [W]; which pieces [begin, end) of the first and of the
      second text it has, int64 [W, 2].
    """
    room, is_pair = spec.max_seq_length - 3, second > 0
    kept = tf.minimum(first, tf.maximum(room - second, (room + 1) // 2))
    context, query = tf.where(is_pair, second, first), tf.where(is_pair, kept, -1)
    text, begin, size, start = cut_windows(tf.zeros_like(first), context, query, spec)
    whole = tf.stack([tf.zeros_like(start), start - 2], axis=1)
    part = tf.stack([begin, begin + size], axis=1)
    is_pair = tf.gather(is_pair, text)[:, None]
    return text, tf.where(is_pair, whole, part), tf.where(is_pair, part, 0)


def shows_most(windows: Windows, rows: tf.Tensor, pieces: tf.Tensor) -> tf.Tensor:
    """Whether no other window of the question shows more context around a piece.

    A window shows as much as the smaller of the numbers of pieces to the left and right. Among
    equals a longer window wins, then an earlier one, so each piece has exactly one. `rows` are the
    numbers of n windows, int64 [n], `pieces` numbers of pieces in them, int64 [n, K].

    Returns:
      bool [n, K].

    Source: google-research/albert squad_utils._check_is_max_context.
    """
    # From one window to the next, the context around a piece first grows and then shrinks, so it is
    # enough to compare with the two neighbours.
    shift = tf.constant([-1, 0, 1], tf.int64)
    others = rows[:, None] + shift
    there = tf.clip_by_value(others, 0, tf.shape(windows.question, tf.int64)[0] - 1)
    same = tf.gather(windows.question, there) == tf.gather(windows.question, rows)[:, None]
    size = tf.gather(windows.size, there)[:, None]
    left = pieces[:, :, None] - tf.gather(windows.first, there)[:, None]
    right = size - 1 - left
    shown = (same & (others == there))[:, None] & (left >= 0) & (right >= 0)
    context = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(size, tf.float64)
    context = tf.where(shown, context, -1)
    own = context[:, :, 1, None]
    better = (context > own) | ((context == own) & (shift < 0))
    return ~tf.reduce_any(better, axis=-1)
