# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns token ranges into padded sequences ``[CLS] A [SEP] B [SEP]``, many instances at once."""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.instances import Instances


@dataclasses.dataclass(frozen=True)
class Batch:
    """n padded, unmasked sequences.

    Attributes:
      input_ids: int32 [n, length], padded with 0.
      is_text: bool [n, length]: True except at [CLS], [SEP] and padding.
      piece_starts: bool [n, length]: the piece starts a word; True at [CLS] and [SEP], False in
        padding.
      a_lengths, b_lengths: int [n]: tokens of the segments; b is 0 if there is one segment.
      lengths: int [n]: tokens with [CLS] and [SEP].
    """

    input_ids: np.ndarray
    is_text: np.ndarray
    piece_starts: np.ndarray
    a_lengths: np.ndarray
    b_lengths: np.ndarray
    lengths: np.ndarray

    @property
    def input_mask(self) -> np.ndarray:
        """bool [n, length]: True up to the last [SEP]."""
        return _columns(self.input_ids) < self.lengths[:, None]

    @property
    def segment_ids(self) -> np.ndarray:
        """bool [n, length]: True for B and its [SEP]."""
        return self.input_mask & (_columns(self.input_ids) >= self.a_lengths[:, None] + 2)


def _columns(sequences: np.ndarray) -> np.ndarray:
    return np.arange(sequences.shape[1], dtype=np.int32)


def assemble(
    tokens: np.ndarray, instances: Instances, max_seq_length: int, tokenizer: Tokenizer
) -> Batch:
    """Returns instances as padded sequences.

    Args:
      tokens: int32: the ids that the instances' ranges refer to.
      instances: ranges that fit into max_seq_length together with [CLS] and [SEP].
      max_seq_length: width of the result.
      tokenizer: for the special ids and the table of word starts.
    """
    a_lengths = instances.a_end - instances.a_start
    b_lengths = instances.b_end - instances.b_start
    column = np.arange(max_seq_length, dtype=np.int32)
    separator = (a_lengths + 1)[:, None]
    ends = np.where(b_lengths > 0, a_lengths + b_lengths + 2, a_lengths + 1)[:, None]
    in_b = column > separator
    is_text = (column > 0) & (column < ends) & (column != separator)
    source = column + (instances.a_start[:, None] - 1)
    source += in_b * (instances.b_start[:, None] - separator - instances.a_start[:, None])
    input_ids = tokens.take(source, mode="clip").astype(np.int32, copy=False)
    input_ids *= is_text
    rows = np.arange(len(input_ids))
    input_ids[:, 0] = tokenizer.cls_id
    input_ids[rows, separator[:, 0]] = tokenizer.sep_id
    input_ids[rows, ends[:, 0]] = tokenizer.sep_id
    piece_starts = tokenizer.word_starts.take(input_ids) & (column <= ends)
    return Batch(input_ids, is_text, piece_starts, a_lengths, b_lengths, ends[:, 0] + 1)
