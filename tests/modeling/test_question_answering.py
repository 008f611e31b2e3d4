# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The question-answering heads against the TF1 release, their masks, training and search."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.modeling.question_answering import (
    FORBIDDEN,
    AlbertBeamAnswerer,
    AlbertSpanAnswerer,
    allowed_positions,
    top_k,
)

TOLERANCE = 2e-6
#: The fixture's mask of the release: 1 where no answer may start or end.
P_MASK = np.array([[0, 1, 1, 1, 0, 0, 1], [0, 1, 1, 0, 0, 1, 1]])
first_case = pytest.mark.parametrize("golden", ["groups1_inner1"], indirect=True)


def called(function, mode):
    """A model run eagerly, with the kernels of training, compiled, or for any length."""

    def forward(inputs):
        with graph_mode(GraphMode.CPU if mode == "training" else GraphMode.PLAIN):
            return function(inputs, training=mode == "training")

    if mode == "eager":
        return forward
    if mode != "any length":
        return tf.function(forward, autograph=False, jit_compile=mode == "jit" or None)
    return lambda inputs: tf.function(
        forward,
        input_signature=[{k: tf.TensorSpec([None, None], v.dtype) for k, v in inputs.items()}],
    )(inputs)


@pytest.mark.golden
@first_case
@pytest.mark.parametrize("mode", ["eager", "training", "jit", "any length"])
def test_beam_outputs_equal_the_official_ones(golden, mode):
    model = AlbertBeamAnswerer(golden.config, 2, 2, dropout_rate=0.0)
    golden.fill(model)
    inputs = {k: v for k, v in golden.inputs.items() if k.startswith("input")}

    def answers(inputs, training):
        sequence = model.encoder(inputs, training)["sequence_output"]
        return model.head(sequence, tf.constant(P_MASK == 0), training=training)

    outputs = called(answers, mode)(inputs)
    np.testing.assert_array_equal(outputs["start_top_index"], [[5, 0], [4, 0]])
    np.testing.assert_array_equal(outputs["end_top_index"], [[5, 0, 5, 0], [3, 4, 3, 4]])
    expected = [[-1.0974741, -1.0991716], [-0.9705961, -0.9708560]]
    np.testing.assert_allclose(outputs["start_top_log_probs"], expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(
        outputs["cls_logits"], [-0.0372914, -0.0251168], rtol=0, atol=TOLERANCE
    )


@pytest.mark.golden
@first_case
@pytest.mark.parametrize("mode", ["eager", "training", "jit", "any length"])
def test_span_logits_equal_the_official_ones(golden, mode):
    model = AlbertSpanAnswerer(golden.config)
    golden.fill(model)
    inputs = {k: v for k, v in golden.inputs.items() if k.startswith("input")}
    outputs = called(model, mode)(inputs)
    for name, expected in (
        ("start_logits", [0.2267417, 0.2272670, 0.2264023]),
        ("end_logits", [-0.0832448, -0.0830058, -0.0833914]),
    ):
        assert outputs[name].shape == [2, 7]
        np.testing.assert_allclose(outputs[name][0, :3], expected, rtol=0, atol=TOLERANCE)


@first_case
def test_variables_have_the_official_names_shapes_and_order(golden):
    size = golden.config.hidden_size
    span = AlbertSpanAnswerer(golden.config).named_weights()
    assert [(k, list(v.shape)) for k, v in span.items()][25:] == [
        ("cls/squad/output_weights", [2, size]),
        ("cls/squad/output_bias", [2]),
    ]
    beam = AlbertBeamAnswerer(golden.config).named_weights()
    assert [(k, list(v.shape)) for k, v in beam.items()][25:] == [
        ("start_logits/dense/kernel", [size, 1]),
        ("start_logits/dense/bias", [1]),
        ("end_logits/dense_0/kernel", [2 * size, size]),
        ("end_logits/dense_0/bias", [size]),
        ("end_logits/LayerNorm/beta", [size]),
        ("end_logits/LayerNorm/gamma", [size]),
        ("end_logits/dense_1/kernel", [size, 1]),
        ("end_logits/dense_1/bias", [1]),
        ("answer_class/dense_0/kernel", [2 * size, size]),
        ("answer_class/dense_0/bias", [size]),
        ("answer_class/dense_1/kernel", [size, 1]),
    ]


def test_answers_are_allowed_in_the_context_and_at_cls():
    mask = tf.constant([[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0]])
    # [CLS] q [SEP] c c c c [SEP], and [CLS] q [SEP] c [SEP] with padding.
    types = tf.constant([[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]])
    np.testing.assert_array_equal(
        allowed_positions({"input_mask": mask, "input_type_ids": types}),
        np.array([[1, 0, 0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 0, 0, 0, 0]], bool),
    )


def test_gold_starts_and_searched_starts_have_the_same_scores(small_config, small_inputs):
    model = AlbertBeamAnswerer(small_config, start_n_top=3, end_n_top=2)
    for variable in model.head.weights:
        variable.assign(tf.random.stateless_normal(variable.shape, [3, len(variable.shape)]))
    allowed = allowed_positions(small_inputs).numpy()
    searched = {k: v.numpy() for k, v in model(small_inputs).items()}
    for i in range(3):
        starts = searched["start_top_index"][:, i]
        gold = model({**small_inputs, "start_positions": tf.constant(starts)})
        rows = np.arange(2)
        np.testing.assert_allclose(
            gold["start_log_probs"].numpy()[rows, starts],
            searched["start_top_log_probs"][:, i], atol=1e-5)  # fmt: skip
        end_log_probs = gold["end_log_probs"].numpy()
        order = np.argsort(-end_log_probs, kind="stable")[:, :2]
        np.testing.assert_array_equal(searched["end_top_index"][:, 2 * i : 2 * i + 2], order)
        np.testing.assert_allclose(
            searched["end_top_log_probs"][:, 2 * i : 2 * i + 2],
            np.take_along_axis(end_log_probs, order, 1), atol=1e-5)  # fmt: skip
        for log_probs in (gold["start_log_probs"].numpy(), end_log_probs):
            np.testing.assert_allclose(np.exp(log_probs).sum(1), 1, atol=1e-5)
            assert np.exp(log_probs)[~allowed].max() == 0
    # Different starts see different ends.
    assert np.ptp(searched["end_top_log_probs"][0, ::2]) > 1e-3


def test_top_k_pads_sequences_shorter_than_k():
    any_length = tf.function(lambda x: top_k(x, 4), input_signature=[tf.TensorSpec([None, None])])
    for function in (lambda x: top_k(x, 4), any_length):
        scores, positions = function(tf.constant([[1.0, 3.0, 2.0]]))
        np.testing.assert_array_equal(positions, [[1, 2, 0, 0]])
        np.testing.assert_allclose(scores, [[3, 2, 1, FORBIDDEN]])


def test_padding_changes_no_score(small_config, small_inputs):
    small_inputs = {k: v for k, v in small_inputs.items() if k.startswith("input")}
    padded = {k: tf.pad(v, [[0, 0], [0, 5]]) for k, v in small_inputs.items()}
    span = AlbertSpanAnswerer(small_config)
    real = small_inputs["input_mask"].numpy() > 0
    for name, value in span(small_inputs).items():
        np.testing.assert_allclose(span(padded)[name][:, :10][real], value[real], atol=1e-5)
    # The second row has two allowed positions, [CLS] and one token.
    beam = AlbertBeamAnswerer(small_config, start_n_top=2, end_n_top=2)
    for name, value in beam(small_inputs).items():
        np.testing.assert_allclose(beam(padded)[name], value, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "deviation"),
    [(lambda config: AlbertBeamAnswerer(config, 2, 2, 0.1), 0.1), (AlbertSpanAnswerer, 0.02)],
)
def test_heads_are_initialised_as_in_the_release(small_config, build, deviation):
    # run_squad_v2 follows the configuration, run_squad_v1 does not.
    config = dataclasses.replace(small_config, hidden_size=128, initializer_range=0.1)
    matrices = {
        name: variable.numpy()
        for name, variable in build(config).head.named_weights().items()
        if len(variable.shape) == 2
    }
    assert len(matrices) == (5 if deviation == 0.1 else 1)
    for name, value in matrices.items():
        assert np.abs(value).max() <= 2 * deviation, name
        # A normal truncated at two deviations has 0.88 of the deviation.
        assert abs(value.std() / (0.8796 * deviation) - 1) < 5 / np.sqrt(value.size), name
