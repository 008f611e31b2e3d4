# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the SavedModels that answer have in common."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.data import records
from albert_tf.training.task import Batch

#: What is read of a serialized tf.Example, as the TF1 release named it.
_FEATURES = ("input_ids", "input_mask", "segment_ids")


def input_specs(*names: str) -> dict[str, tf.TensorSpec]:
    """The encoder's inputs and further ones, int32 [batch, length] of any size."""
    names = ("input_word_ids", "input_mask", "input_type_ids", *names)
    return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}


def strings(name: str, rank: int = 1) -> tf.TensorSpec:
    """The signature of an input of strings of any number."""
    return tf.TensorSpec([None] * rank, tf.string, name)


def cut_padding(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The encoder's inputs [..., S] up to the end of the longest sequence."""
    mask = inputs["input_mask"]
    longest = tf.reduce_max(tf.reduce_sum(mask, axis=-1))
    return {name: value[..., :longest] for name, value in inputs.items()}


def parse_examples(serialized: tf.Tensor, max_seq_length: int) -> Batch:
    """The encoder's inputs, int32 [B, max_seq_length], from serialized tf.Examples, string [B].

    Source: google-research/albert run_classifier.py, the serving input of its exported model.
    """
    feature = tf.io.FixedLenFeature([max_seq_length], tf.int64)
    parsed = tf.io.parse_example(serialized, dict.fromkeys(_FEATURES, feature))
    return records.to_model_names({k: tf.cast(v, tf.int32) for k, v in parsed.items()})
