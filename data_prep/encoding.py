# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Encodes instances as records: masked ones, or compact ones that training masks and swaps."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np

from albert_tf.data import records
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.assembly import assemble
from data_prep.instances import Instances
from data_prep.masking import mask
from data_prep.pretraining_options import PretrainingOptions


@dataclasses.dataclass(frozen=True)
class Context:
    """The tokenizer and the options, which are the same for all records of a build."""

    tokenizer: Tokenizer
    options: PretrainingOptions


def encode_masked(
    context: Context,
    tokens: np.ndarray,
    instances: Instances,
    rng: np.random.Generator,
    counts: Counter[str],
) -> list[bytes]:
    """Masks instances and encodes them, see records.pretraining_features; adds to `counts`.

    See `masked_columns` for the arguments.
    """
    columns = masked_columns(context, tokens, instances, rng, counts)
    return records.encode_examples(columns, context.options.features(context.tokenizer.vocab_size))


def masked_columns(
    context: Context,
    tokens: np.ndarray,
    instances: Instances,
    rng: np.random.Generator,
    counts: Counter[str],
) -> dict[str, np.ndarray]:
    """Masks n instances; adds to `counts`.

    Args:
      context: tokenizer and options.
      tokens: int32: the ids that the instances' ranges refer to.
      instances: the instances.
      rng: source of all randomness.
      counts: counts for the statistics.

    Returns:
      The features of records.pretraining_features by name, [n, *shape].
    """
    options, tokenizer = context.options, context.tokenizer
    batch = assemble(tokens, instances, options.max_seq_length, tokenizer)
    masked = mask(batch, options.masking(), tokenizer.mask_id, random_ids(context), rng)
    counts["instances"] += len(instances)
    counts["sequence_tokens"] += int(batch.lengths.sum())
    counts["label_1"] += int(instances.labels.sum())
    counts["instances_without_predictions"] += int((masked.weights[:, 0] == 0).sum())
    for name in ("replaced_by_mask", "kept", "replaced_by_random", "permuted"):
        counts[name] += getattr(masked, name)
    for words, spans in enumerate(masked.span_counts.tolist(), start=1):
        counts[f"spans_{words}"] += spans
    return {
        "input_ids": masked.input_ids,
        "input_mask": batch.input_mask,
        "segment_ids": batch.segment_ids,
        "token_boundary": batch.piece_starts,
        "masked_lm_positions": masked.positions,
        "masked_lm_ids": masked.labels,
        "masked_lm_weights": masked.weights,
        "next_sentence_labels": instances.labels,
    }


def random_ids(context: Context) -> np.ndarray:
    """Returns int32 ids to draw random replacements from; the official builder allows all."""
    ids = np.arange(context.tokenizer.vocab_size, dtype=np.int32)
    return ids if context.options.official else np.delete(ids, context.tokenizer.special_ids)


def encode_compact(
    context: Context, tokens: np.ndarray, instances: Instances, counts: Counter[str]
) -> list[bytes]:
    """Encodes instances as text, see records.compact_features; adds to `counts`.

    See `masked_columns` for the arguments.
    """
    options, tokenizer = context.options, context.tokenizer
    batch = assemble(tokens, _in_text_order(instances), options.max_seq_length, tokenizer)
    lengths = batch.a_lengths + batch.b_lengths
    ends = np.cumsum(lengths)
    text = batch.input_ids[batch.is_text]
    word_starts = np.zeros(batch.is_text.shape, bool)
    word_starts[np.arange(options.max_seq_length) < lengths[:, None]] = batch.piece_starts[
        batch.is_text
    ]
    bits = np.packbits(word_starts, axis=1)
    counts["instances"] += len(instances)
    counts["sequence_tokens"] += int(batch.lengths.sum())
    columns = {
        "text_ids": [text[i:j] for i, j in zip((ends - lengths).tolist(), ends.tolist())],
        "word_starts": [row[:size] for row, size in zip(bits, (-(-lengths // 8)).tolist())],
        "segment_lengths": np.stack([batch.a_lengths, batch.b_lengths], axis=1),
    }
    return records.encode_examples(columns, options.features(tokenizer.vocab_size))


def _in_text_order(instances: Instances) -> Instances:
    """Undoes the swap of segments, which training does."""
    swapped = instances.labels > 0
    return Instances(
        np.where(swapped, instances.b_start, instances.a_start),
        np.where(swapped, instances.b_end, instances.a_end),
        np.where(swapped, instances.a_start, instances.b_start),
        np.where(swapped, instances.a_end, instances.b_end),
        np.zeros_like(instances.labels),
    )
