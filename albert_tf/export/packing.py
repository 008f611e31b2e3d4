# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From token ids to the encoder's inputs with TensorFlow operations.

tensorflow-text pads; its `combine_segments` cannot leave out the [SEP] of an empty segment, and its
trimmers need custom operations or loops where two lines of arithmetic do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.tokenization.tokenizer import Tokenizer


def merge_words(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns ids [B, (tokens)] from ids [B, (words), (pieces)] or [B, (tokens)]."""
    return ids if ids.ragged_rank == 1 else ids.merge_dims(1, ids.ragged_rank)


def keep(ids: tf.RaggedTensor, longest: int | tf.Tensor, at_end: bool = False) -> tf.RaggedTensor:
    """Returns the first, or last, entries of each row: at most `longest`, an int or int64 [B]."""
    lengths = tf.minimum(ids.row_lengths(), longest)
    first = ids.row_limits() - lengths if at_end else ids.row_starts()
    row = ids.value_rowids()
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(first, row)
    kept = (position >= 0) & (position < tf.gather(lengths, row))
    return _rows(tf.boolean_mask(ids.values, kept), lengths)


def join(
    segments: Sequence[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    tokenizer: Tokenizer,
    skip_empty_second: bool = False,
) -> dict[str, tf.Tensor]:
    """Joins one or two segments [B, (tokens)] that fit to [CLS] A [SEP] B [SEP], and pads.

    If `skip_empty_second`, a pair whose B is empty becomes [CLS] A [SEP].
    """
    ones = tf.ones_like(segments[0].row_lengths())
    parts, types = [_repeated(tokenizer.cls_id, ones)], [_repeated(0, ones)]
    for number, segment in enumerate(segments):
        separators = _separators(segment) if number and skip_empty_second else ones
        parts += [segment, _repeated(tokenizer.sep_id, separators)]
        types.append(_repeated(number, segment.row_lengths() + separators))
    ids, mask = tf_text.pad_model_inputs(tf.concat(parts, axis=1), seq_length, tokenizer.pad_id)
    types, _ = tf_text.pad_model_inputs(tf.concat(types, axis=1), seq_length)
    packed = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    shape = [None, seq_length if isinstance(seq_length, int) else None]
    return {name: tf.ensure_shape(value, shape) for name, value in packed.items()}


def _separators(segment: tf.RaggedTensor) -> tf.Tensor:
    """Returns 1 for rows that are not empty, otherwise 0."""
    return tf.cast(segment.row_lengths() > 0, tf.int64)


def _repeated(value: int, times: tf.Tensor) -> tf.RaggedTensor:
    """Returns `value` times[i] times in row i; int64 [B] to int32 [B, (times)]."""
    return _rows(tf.fill([tf.reduce_sum(times)], value), times)


def _rows(values: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    # Checks would be most of the graph.
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def pack(
    segments: Sequence[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    tokenizer: Tokenizer,
    skip_empty_second: bool = False,
) -> dict[str, tf.Tensor]:
    """Truncates one or two segments, and joins them.

    Two segments that are too long lose tokens off the end of the longer one, B first where they
    are equally long, as in albert_tf.tokenization.sequences.truncated_lengths.

    Args:
      segments: ragged int32 [B, (tokens)] or [B, (words), (pieces)].
      seq_length: S, an int or a scalar int32 tensor; at least 3, or 2 for one segment.
      tokenizer: has the ids of the special pieces.
      skip_empty_second: see `join`.
    """
    flat = [merge_words(segment) for segment in segments]
    room = tf.cast(seq_length, tf.int64) - 2
    if len(flat) == 1:
        kept = [keep(flat[0], room)]
    else:
        room -= _separators(flat[1]) if skip_empty_second else 1
        first = keep(flat[0], tf.maximum(room - flat[1].row_lengths(), (room + 1) // 2))
        kept = [first, keep(flat[1], room - first.row_lengths())]
    return join(kept, seq_length, tokenizer, skip_empty_second)


def cut_padding(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Cuts the encoder's inputs [..., S] at the end of the longest sequence."""
    mask = inputs["input_mask"]
    # Of no sequences at all, the largest length is negative.
    longest = tf.maximum(tf.reduce_max(tf.reduce_sum(mask, axis=-1)), 1)
    return {name: value[..., :longest] for name, value in inputs.items()}
