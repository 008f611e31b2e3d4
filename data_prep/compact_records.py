# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compact records: instances as text, whose masks and sentence order are drawn while training."""

from __future__ import annotations

from collections import Counter

import numpy as np

from albert_tf.data import records
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.assembly import assemble
from data_prep.instances import Instances
from data_prep.pretraining_options import PretrainingOptions


def encode_compact_instances(
    tokenizer: Tokenizer,
    options: PretrainingOptions,
    tokens: np.ndarray,
    instances: Instances,
    counts: Counter[str],
) -> list[bytes]:
    """Encodes instances as compact records, see records.compact_features; adds to `counts`."""
    instances = _in_text_order(instances)
    batch = assemble(tokens, instances, options.max_seq_length, tokenizer)
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
    """Instances whose segments are where the text has them, as training swaps them."""
    swapped = instances.labels > 0
    return Instances(
        np.where(swapped, instances.b_start, instances.a_start),
        np.where(swapped, instances.b_end, instances.a_end),
        np.where(swapped, instances.a_start, instances.b_start),
        np.where(swapped, instances.a_end, instances.b_end),
        np.zeros_like(instances.labels),
    )
