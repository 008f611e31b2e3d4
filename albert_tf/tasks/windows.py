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


def cut_windows(
    starts: tf.Tensor, lengths: tf.Tensor, query_lengths: tf.Tensor, spec: Any
) -> Windows:
    """Cuts the contexts of questions into windows.

    Windows begin every `doc_stride` pieces, or sooner if that would skip pieces; the last one ends
    with the context. `starts` and `lengths`, int64 [Q], are the number of the first piece, and how
    many pieces, of each question's context; `query_lengths` the pieces of each question;
    `spec` has `max_seq_length` and `doc_stride`.
    """
    room = spec.max_seq_length - 3 - query_lengths
    stride = tf.minimum(room, spec.doc_stride)
    count = 1 + (tf.maximum(lengths - room, 0) + stride - 1) // stride
    number = tf.ragged.range(count)
    question = number.value_rowids()
    offset = number.values * tf.gather(stride, question)
    size = tf.minimum(tf.gather(room, question), tf.gather(lengths, question) - offset)
    first = tf.gather(starts, question) + offset
    return Windows(question, first, size, tf.gather(query_lengths, question) + 2)


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
