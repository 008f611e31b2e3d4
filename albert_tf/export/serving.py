# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures and inputs that SavedModels of several tasks share."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.data import records
from albert_tf.training.task import Batch

#: The features of a serialized tf.Example, with the TF1 release's names.
_FEATURES = ("input_ids", "input_mask", "segment_ids")


def input_specs(*names: str) -> dict[str, tf.TensorSpec]:
    """Returns specs of the encoder's inputs and further ones, int32 [None, None]."""
    names = ("input_word_ids", "input_mask", "input_type_ids", *names)
    return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}


def strings(name: str, rank: int = 1) -> tf.TensorSpec:
    """Returns the spec of a string input of any size."""
    return tf.TensorSpec([None] * rank, tf.string, name)


def cut_padding(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Cuts the encoder's inputs [..., S] at the end of the longest sequence."""
    mask = inputs["input_mask"]
    # Of no sequences at all, the largest length is negative.
    longest = tf.maximum(tf.reduce_max(tf.reduce_sum(mask, axis=-1)), 1)
    return {name: value[..., :longest] for name, value in inputs.items()}


def parse_examples(serialized: tf.Tensor, max_seq_length: int) -> Batch:
    """Parses serialized tf.Examples, string [B], to inputs, int32 [B, max_seq_length].

    Source: google-research/albert run_classifier.py, the serving input of its exported model.
    """
    feature = tf.io.FixedLenFeature([max_seq_length], tf.int64)
    parsed = tf.io.parse_example(serialized, dict.fromkeys(_FEATURES, feature))
    return records.to_model_names({k: tf.cast(v, tf.int32) for k, v in parsed.items()})
