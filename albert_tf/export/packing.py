# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From ragged token ids to the encoder's three tensors, inside a graph."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.tokenization.tokenizer import Tokenizer


def merge_words(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Ids [B, (tokens)] of ids [B, (words), (pieces)], or of themselves."""
    return ids if ids.ragged_rank == 1 else ids.merge_dims(1, ids.ragged_rank)


def keep(ids: tf.RaggedTensor, lengths: tf.Tensor, at_end: bool = False) -> tf.RaggedTensor:
    """The first, or last, lengths[i] entries of row i; int64 [B], none longer than its row."""
    first = ids.row_limits() - lengths if at_end else ids.row_starts()
    row = ids.value_rowids()
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(first, row)
    kept = (position >= 0) & (position < tf.gather(lengths, row))
    return _rows(tf.boolean_mask(ids.values, kept), lengths)


def join(
    segments: Sequence[tf.RaggedTensor],
    separators: Sequence[tf.Tensor],
    seq_length: int | tf.Tensor,
    tokenizer: Tokenizer,
) -> dict[str, tf.Tensor]:
    """Joins one or two segments that are short enough to [CLS] A [SEP] B [SEP], and pads.

    Args:
      segments: ragged int32 [B, (tokens)].
      separators: int64 [B] for each segment: how many [SEP] follow it, 1 or 0.
      seq_length: S.
      tokenizer: provides the ids of the special pieces.

    Returns:
      `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S].
    """
    parts = [_repeated(tokenizer.cls_id, tf.ones_like(separators[0]))]
    types = [_repeated(0, tf.ones_like(separators[0]))]
    for number, (segment, separator) in enumerate(zip(segments, separators)):
        parts += [segment, _repeated(tokenizer.sep_id, separator)]
        types.append(_repeated(number, segment.row_lengths() + separator))
    ids, types = tf.concat(parts, axis=1), tf.concat(types, axis=1)

    def padded(rows: tf.RaggedTensor, value: int) -> tf.Tensor:
        shape = tf.stack([rows.nrows(), tf.cast(seq_length, tf.int64)])
        dense = rows.to_tensor(value, shape=shape)
        return tf.ensure_shape(dense, [None, seq_length if isinstance(seq_length, int) else None])

    return {
        "input_word_ids": padded(ids, tokenizer.pad_id),
        "input_mask": padded(tf.ones_like(ids), 0),
        "input_type_ids": padded(types, 0),
    }


def _repeated(value: int, times: tf.Tensor) -> tf.RaggedTensor:
    """`value` times[i] times in row i; int64 [B] to int32 [B, (times)]."""
    return _rows(tf.fill([tf.reduce_sum(times)], value), times)


def _rows(values: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    # Checks would be most of the graph.
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def pack(
    segments: Sequence[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    tokenizer: Tokenizer,
    *,
    skip_empty_second: bool = False,
) -> dict[str, tf.Tensor]:
    """Cuts one or two segments to fit, and joins them.

    Two segments that are too long lose tokens off the end of the longer one, B first where they
    are equally long, as in albert_tf.tokenization.sequences.truncated_lengths.

    Args:
      segments: ragged int32 [B, (tokens)] or [B, (words), (pieces)].
      seq_length: S, an int or a scalar int32 tensor; at least 3, or 2 for one segment.
      tokenizer: provides the ids of the special pieces.
      skip_empty_second: a pair whose B is empty becomes [CLS] A [SEP].

    Returns:
      As `join`.
    """
    flat = [merge_words(segment) for segment in segments]
    size = tf.cast(seq_length, tf.int64)
    lengths = [segment.row_lengths() for segment in flat]
    ones = tf.ones_like(lengths[0])
    if len(flat) == 1:
        return join(
            [keep(flat[0], tf.minimum(lengths[0], size - 2))], [ones], seq_length, tokenizer
        )
    present = tf.cast(lengths[1] > 0, tf.int64) if skip_empty_second else ones
    room = size - 2 - present
    first = tf.minimum(lengths[0], tf.maximum(room - lengths[1], (room + 1) // 2))
    kept = [keep(flat[0], first), keep(flat[1], tf.minimum(lengths[1], room - first))]
    return join(kept, [ones, present], seq_length, tokenizer)
