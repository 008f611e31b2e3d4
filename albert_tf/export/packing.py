# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From ragged token ids to the encoder's three tensors, inside a graph."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def _first(ids: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first lengths[i] entries of row i; lengths int64 [B], none longer than its row."""
    position = tf.ragged.range(ids.row_lengths()).values
    kept = tf.boolean_mask(ids.values, position < tf.gather(lengths, ids.value_rowids()))
    return tf.RaggedTensor.from_row_lengths(kept, lengths)


def _repeated(value: int, times: tf.Tensor) -> tf.RaggedTensor:
    """`value` times[i] times in row i; int64 [B] to int32 [B, (times)]."""
    return tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(times)], value), times)


def pack(
    segments: Sequence[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    *,
    skip_empty_second: bool = False,
) -> dict[str, tf.Tensor]:
    """Joins one or two segments to [CLS] A [SEP] or [CLS] A [SEP] B [SEP], and pads.

    Two segments that are too long lose tokens off the end of the longer one, B first where they
    are equally long, as in albert_tf.tasks.classification_features.truncated_lengths.

    Args:
      segments: ragged int32 [B, (tokens)] or [B, (words), (pieces)].
      seq_length: S, an int or a scalar int32 tensor; at least 3, or 2 for one segment.
      cls_id, sep_id, pad_id: of the vocabulary.
      skip_empty_second: a pair whose B is empty becomes [CLS] A [SEP].

    Returns:
      `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S].
    """
    flat = [s if s.ragged_rank == 1 else s.merge_dims(1, s.ragged_rank) for s in segments]
    size = tf.cast(seq_length, tf.int64)
    lengths = [segment.row_lengths() for segment in flat]
    ones = tf.ones_like(lengths[0])
    if len(flat) == 1:
        kept = [tf.minimum(lengths[0], size - 2)]
        separators = [ones]
    else:
        present = tf.cast(lengths[1] > 0, tf.int64) if skip_empty_second else ones
        room = size - 2 - present
        kept_first = tf.minimum(lengths[0], tf.maximum(room - lengths[1], (room + 1) // 2))
        kept = [kept_first, tf.minimum(lengths[1], room - kept_first)]
        separators = [ones, present]
    parts = [_repeated(cls_id, ones)]
    for segment, length, separator in zip(flat, kept, separators):
        parts += [_first(segment, length), _repeated(sep_id, separator)]
    ids = tf.concat(parts, axis=1)
    types = [_repeated(0, kept[0] + 2)]
    if len(flat) == 2:
        types.append(_repeated(1, kept[1] + separators[1]))
    types = tf.concat(types, axis=1)

    def padded(rows: tf.RaggedTensor, value: int) -> tf.Tensor:
        dense = rows.to_tensor(value, shape=tf.stack([rows.nrows(), size]))
        return tf.ensure_shape(dense, [None, seq_length if isinstance(seq_length, int) else None])

    return {
        "input_word_ids": padded(ids, pad_id),
        "input_mask": padded(tf.ones_like(ids), 0),
        "input_type_ids": padded(types, 0),
    }
