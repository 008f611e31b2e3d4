# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertClassifier and AlbertMultipleChoice: heads, dropout, any number of options."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.classifier import AlbertClassifier, AlbertMultipleChoice


def test_logits_are_a_linear_function_of_the_pooled_output(small_config, small_inputs):
    model = AlbertClassifier(small_config, num_labels=3)
    named = model.named_weights()
    assert list(named)[-2:] == ["output_weights", "output_bias"]
    assert named["output_weights"].shape == [3, 32]
    named["output_bias"].assign([1.0, 2.0, 3.0])
    pooled = model.encoder(small_inputs)["pooled_output"]
    expected = pooled @ tf.transpose(named["output_weights"]) + [1.0, 2.0, 3.0]
    np.testing.assert_allclose(model(small_inputs)["logits"], expected, rtol=0, atol=1e-6)


def test_dropout_changes_the_logits_only_in_training(small_config, small_inputs):
    model = AlbertClassifier(small_config, num_labels=2, dropout_rate=0.5)
    trained = [model(small_inputs, training=True)["logits"] for _ in range(2)]
    assert np.abs(trained[0] - trained[1]).max() > 1e-4
    np.testing.assert_array_equal(*(model(small_inputs)["logits"] for _ in range(2)))


def options_input(config, questions, choices, length):
    """Random rows of random lengths, int32 [questions, choices, length]."""
    generator = np.random.default_rng(length)
    shape = (questions, choices, length)
    position = np.arange(length)
    mask = position < generator.integers(3, length + 1, (questions, choices, 1))
    ids = generator.integers(5, config.vocab_size, shape)
    inputs = {
        "input_word_ids": ids * mask,
        "input_mask": mask,
        "input_type_ids": mask & (position >= length // 2),
    }
    return {name: tf.constant(value, tf.int32) for name, value in inputs.items()}


@pytest.mark.parametrize("choices", [2, 4, 5])
def test_logits_are_those_of_a_one_label_classifier_on_each_option(small_config, choices):
    model = AlbertMultipleChoice(small_config)
    classifier = AlbertClassifier(small_config, num_labels=1)
    named = model.named_weights()
    assert list(named) == list(classifier.named_weights())
    assert named["output_weights"].shape == [1, 32] and named["output_bias"].shape == [1]
    for name, weight in classifier.named_weights().items():
        named[name].assign(weight)
    named["output_bias"].assign([0.7])
    classifier.named_weights()["output_bias"].assign([0.7])

    inputs = options_input(small_config, 3, choices, 9)
    outputs = model(inputs)
    assert outputs["logits"].shape == [3, choices]
    for choice in range(choices):
        alone = classifier({name: value[:, choice] for name, value in inputs.items()})
        np.testing.assert_allclose(outputs["logits"][:, choice], alone["logits"][:, 0], atol=1e-6)


def test_one_graph_serves_any_number_of_options_of_any_length(small_config):
    model = AlbertMultipleChoice(small_config)
    free = tf.TensorSpec([None, None, None], tf.int32)
    names = ("input_word_ids", "input_mask", "input_type_ids")
    graph = tf.function(lambda x: model(x)["logits"], input_signature=[dict.fromkeys(names, free)])
    for shape in ((1, 2, 6), (3, 4, 11)):
        inputs = options_input(small_config, *shape)
        np.testing.assert_allclose(graph(inputs), model(inputs)["logits"], atol=1e-6)
