# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertClassifier: its head and its dropout."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.modeling.classifier import AlbertClassifier


def test_logits_are_a_linear_function_of_the_pooled_output(small_config, small_inputs):
    model = AlbertClassifier(small_config, num_labels=3)
    named = model.named_weights()
    assert list(named)[-2:] == ["output_weights", "output_bias"]
    assert named["output_weights"].shape == [3, 32]
    named["output_bias"].assign([1.0, 2.0, 3.0])
    outputs = model(small_inputs)
    expected = outputs["pooled_output"] @ tf.transpose(named["output_weights"]) + [1.0, 2.0, 3.0]
    np.testing.assert_allclose(outputs["logits"], expected, rtol=0, atol=1e-6)


def test_dropout_changes_the_logits_only_in_training(small_config, small_inputs):
    model = AlbertClassifier(small_config, num_labels=2, dropout_rate=0.5)
    trained = [model(small_inputs, training=True) for _ in range(2)]
    assert np.abs(trained[0]["logits"] - trained[1]["logits"]).max() > 1e-4
    np.testing.assert_array_equal(*(outputs["pooled_output"] for outputs in trained))
    np.testing.assert_array_equal(*(model(small_inputs)["logits"] for _ in range(2)))


def test_logits_are_float32_under_mixed_precision(small_config, small_inputs):
    model = AlbertClassifier(small_config, num_labels=1, dtype="mixed_bfloat16")
    assert model(small_inputs)["logits"].dtype == tf.float32


def test_all_weights_have_gradients(small_config, small_inputs, check_gradients):
    model = AlbertClassifier(small_config, num_labels=3)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(small_inputs, training=True)["logits"] ** 2)
    check_gradients(tape, loss, model)
