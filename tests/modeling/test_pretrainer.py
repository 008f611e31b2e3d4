# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertPretrainer against the TF1 release, and its gradients in all modes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.modeling.pretrainer import AlbertPretrainer
from tests.modeling.conftest import loss_and_gradients

TOLERANCE = 2e-6


def assert_golden(value, expected):
    np.testing.assert_allclose(np.ravel(value), expected, rtol=0, atol=TOLERANCE)


def test_variables_have_the_official_names_shapes_and_order(golden):
    model = AlbertPretrainer(golden.config)
    named = [[name, list(v.shape)] for name, v in model.named_weights().items()]
    assert named == golden.expected["variables"]
    assert all(v.dtype == tf.float32 and v.trainable for v in model.named_weights().values())
    assert len(model.trainable_variables) == len(named)


def without_positions(inputs):
    """Inputs for which all positions are computed."""
    return {name: value for name, value in inputs.items() if name != "masked_lm_positions"}


def called(model, mode):
    """The model as a function that runs eagerly or as a graph of a mode. Dropout is 0."""

    def forward(inputs):
        with graph_mode(mode or GraphMode.PLAIN):
            return model(inputs, training=mode is not None)

    if mode is None:
        return forward
    return tf.function(forward, autograph=False, jit_compile=mode.is_compiled or None)


@pytest.mark.golden
@pytest.mark.parametrize(
    "mode",
    [
        None,
        GraphMode.SERVED,
        GraphMode.CPU,
        GraphMode.XLA,
        pytest.param(GraphMode.TPU, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_outputs_and_losses_equal_the_official_ones(golden, mode):
    model = AlbertPretrainer(golden.config)
    golden.fill(model)
    forward = called(model, mode)
    outputs = forward(golden.inputs)
    per_position, mlm, sop = golden.losses(outputs)

    sequence = forward(without_positions(golden.inputs))["sequence_output"]
    assert_golden(sequence, golden.expected["sequence_output"])
    assert_golden(outputs["pooled_output"], golden.expected["pooled_output"])
    assert_golden(tf.nn.log_softmax(outputs["mlm_logits"]), golden.expected["mlm_log_probs"])
    assert_golden(tf.nn.log_softmax(outputs["sop_logits"]), golden.expected["sop_log_probs"])
    assert_golden(per_position, golden.expected["mlm_per_position_loss"])
    assert_golden(mlm, golden.expected["mlm_loss"])
    assert_golden(sop, golden.expected["sop_loss"])


@pytest.mark.golden
@pytest.mark.parametrize(
    "mode", [GraphMode.CPU, pytest.param(GraphMode.XLA, marks=pytest.mark.slow)]
)
def test_float16_gives_the_official_values_within_its_rounding(golden, mode):
    model = AlbertPretrainer(golden.config, "mixed_float16")
    golden.fill(model)
    forward = called(model, mode)
    outputs = forward(golden.inputs)
    sequence = forward(without_positions(golden.inputs))["sequence_output"]
    _, mlm, sop = golden.losses(outputs)
    # The largest output is 1.87, where float16's numbers are 0.001 apart, and bfloat16's 0.008.
    for value, name, tolerance in (
        (sequence, "sequence_output", 0.008),
        (outputs["pooled_output"], "pooled_output", 5e-4),
        (tf.nn.log_softmax(outputs["mlm_logits"]), "mlm_log_probs", 6e-4),
        (tf.nn.log_softmax(outputs["sop_logits"]), "sop_log_probs", 2e-4),
        (mlm, "mlm_loss", 3e-4),
        (sop, "sop_loss", 1e-4),
    ):
        value, expected = np.ravel(value).astype(np.float64), golden.expected[name]
        np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("golden", ["groups1_inner1"], indirect=True)
@pytest.mark.parametrize("mode", [GraphMode.PLAIN, GraphMode.CPU, GraphMode.GPU])
def test_gradient_norm_equals_the_official_one(golden, mode):
    # The official norm measures the segment embeddings' gradient token by token: it is 6.8936,
    # while the norm of the gradient is 6.9023.
    model = AlbertPretrainer(golden.config)
    golden.fill(model)
    with graph_mode(mode), tf.GradientTape() as tape:
        _, mlm, sop = golden.losses(model(golden.inputs, training=True))
        loss = mlm + sop
    gradients = tape.gradient(loss, list(model.named_weights().values()))
    np.testing.assert_allclose(float(loss), 4.2040219, atol=2e-6)
    # The first norm of the official training traces.
    np.testing.assert_allclose(tf.linalg.global_norm(gradients), 6.8935700, atol=2e-5)


def test_with_the_right_tokens_it_returns_their_losses_and_no_logits(small_config, small_inputs):
    model = AlbertPretrainer(small_config)
    logits = model(small_inputs)["mlm_logits"]
    best = tf.argmax(logits, axis=2, output_type=tf.int32)
    # Those of the first example are wrong.
    ids = (best + tf.constant([[1], [0]])) % small_config.vocab_size
    outputs = model({**small_inputs, "masked_lm_ids": ids})
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)
    np.testing.assert_allclose(outputs["mlm_losses"], losses, rtol=1e-5)
    np.testing.assert_array_equal(outputs["mlm_correct"], ids == best)
    assert "mlm_logits" not in outputs


def test_without_positions_the_logits_are_those_of_all_positions(small_config, small_inputs):
    model = AlbertPretrainer(small_config)
    masked = model(small_inputs)["mlm_logits"]
    positions = small_inputs.pop("masked_lm_positions")
    everywhere = model(small_inputs)["mlm_logits"]
    assert everywhere.shape == [2, 10, small_config.vocab_size]
    np.testing.assert_allclose(
        masked, tf.gather(everywhere, positions, batch_dims=1), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("sharing", "embedding_size"),
    [("all", 16), ("all", 32), ("attention", 16), ("ffn", 16), ("none", 16)],
)
def test_all_counted_parameters_exist_and_have_gradients(
    small_config, small_inputs, sharing, embedding_size
):
    config = dataclasses.replace(
        small_config,
        parameter_sharing=sharing,
        embedding_size=embedding_size,
        inner_group_num=2,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    model = AlbertPretrainer(config)
    count = config.count_parameters()
    assert model.count_params() == count["total"]
    assert model.encoder.count_params() == count["encoder"]
    assert model.encoder.pooler.count_params() == count["pooler"]
    assert model.mlm_head.count_params() == count["mlm_head"]
    assert model.sop_head.count_params() == count["sop_head"]

    with tf.GradientTape() as tape:
        outputs = model(small_inputs, training=True)
        loss = tf.reduce_sum(outputs["mlm_logits"] ** 2) + tf.reduce_sum(outputs["sop_logits"] ** 2)
    named = model.named_weights()
    for name, gradient in zip(named, tape.gradient(loss, list(named.values()))):
        norm = float(tf.norm(tf.convert_to_tensor(gradient)))
        assert np.isfinite(norm), name
        # A key's bias shifts all scores of a query alike: softmax cancels it.
        assert norm > 0 or name.endswith("key/bias"), name


def test_weights_are_initialised_as_in_the_release(small_config):
    config = dataclasses.replace(
        small_config, vocab_size=3000, hidden_size=128, initializer_range=0.05
    )
    for name, variable in AlbertPretrainer(config).named_weights().items():
        value = variable.numpy()
        if name.endswith("gamma"):
            assert (value == 1).all(), name
        elif value.ndim == 1:
            assert (value == 0).all(), name
        else:
            # A normal truncated at two deviations has 0.88 of the deviation.
            assert np.abs(value).max() <= 2 * 0.05, name
            error = 5 / np.sqrt(value.size)
            assert abs(value.std() / (0.8796 * 0.05) - 1) < error, name


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_sixteen_bit_policies_stay_close_to_float32(small_config, small_inputs, policy):
    # Large weights, so that rounding would show.
    config = dataclasses.replace(small_config, initializer_range=0.2)
    exact, mixed = AlbertPretrainer(config), AlbertPretrainer(config, dtype=policy)
    for source, target in zip(exact.weights, mixed.weights):
        target.assign(source)
    expected, outputs = exact(small_inputs), mixed(small_inputs)
    assert {v.dtype for v in mixed.named_weights().values()} == {tf.float32}
    sequence = mixed(without_positions(small_inputs))["sequence_output"]
    assert sequence.dtype == tf.as_dtype(policy[len("mixed_") :])
    for name in ("pooled_output", "mlm_logits", "sop_logits"):
        assert outputs[name].dtype == tf.float32
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=0.05 * scale)
    with graph_mode(GraphMode.CPU):
        _, gradients = loss_and_gradients(exact, small_inputs)
        _, mixed_gradients = loss_and_gradients(mixed, small_inputs)
    for name, a, b in zip(exact.named_weights(), gradients, mixed_gradients):
        assert b.dtype == tf.float32
        if not name.endswith("key/bias"):
            assert float(tf.norm(a - b)) < 0.1 * float(tf.norm(a)), name
