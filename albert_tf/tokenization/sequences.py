# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the model's input sequences from the token ids of one or two segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

#: [CLS] A [SEP] B [SEP] with a token each.
MIN_SEQ_LENGTH = 5


def join_segments(
    tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None = None
) -> np.ndarray:
    """Returns `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, int32 [length]."""
    sep = [tokenizer.sep_id]
    parts = [[tokenizer.cls_id], first, sep]
    if second is not None:
        parts += [second, sep]
    return np.concatenate([np.asarray(part, np.int32) for part in parts])


def pad_sequences(
    tokenizer: Tokenizer, sequences: Sequence[np.ndarray], length: int | None = None
) -> dict[str, np.ndarray]:
    """Pads sequences of one segment to one length.

    Args:
      tokenizer: has the id of the padding piece.
      sequences: n arrays of ids.
      length: L, at least that of the longest sequence, which is the default.

    Returns:
      `input_word_ids`, `input_mask` and `input_type_ids`, int32 [n, L].
    """
    sizes = np.array([len(sequence) for sequence in sequences])[:, None]
    present = np.arange(sizes.max() if length is None else length) < sizes
    ids = np.full(present.shape, tokenizer.pad_id, np.int32)
    ids[present] = np.concatenate(sequences)
    return {
        "input_word_ids": ids,
        "input_mask": present.astype(np.int32),
        "input_type_ids": np.zeros_like(ids),
    }
