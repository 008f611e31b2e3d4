# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The mode TPU, compiled for the CPU: the same numbers as the plain formulas."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.attention import tpu_attention
from albert_tf.modeling.kernels.cross_entropy import cross_entropy
from albert_tf.modeling.kernels.dense import column_sums
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.modeling.pretrainer import AlbertPretrainer
from tests.modeling.conftest import loss_and_gradients

MASK = np.float32([[0, 0, 0, 0, 0], [0, 0, -10000, 0, -10000]])[:, None, None]
#: Of the probabilities [B, N, S, S]; rows without any are among them.
KEPT = np.random.default_rng(0).random([2, 3, 5, 5]) < 0.5


def textbook_attention(query, key, value, kept=1.0):
    scores = tf.einsum("bqnd,bknd->bnqk", query, key) / 4**0.5
    return tf.einsum("bnqk,bknd->bqnd", tf.nn.softmax(scores + MASK) * kept, value)


def value_and_gradients(function, inputs):
    """Returns the value, and the gradients of its sum weighted by constants."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = function(*inputs)
        weights = tf.reshape(tf.cos(tf.range(tf.size(value), dtype=tf.float32)), value.shape)
        loss = tf.reduce_sum(tf.cast(value, tf.float32) * weights)
    return value, *tape.gradient(loss, inputs)


def compiled(function, *inputs):
    with graph_mode(GraphMode.TPU):
        return tf.function(function, autograph=False, jit_compile=True)(*inputs)


def check(function, textbook, inputs, tolerance):
    """Compares value and gradients of a compiled function with eager ones in float32."""
    found = compiled(lambda *x: value_and_gradients(function, x), *inputs)
    truth = value_and_gradients(textbook, [tf.cast(x, tf.float32) for x in inputs])
    for a, b in zip(found, truth):
        assert (a.dtype, a.shape) == (inputs[0].dtype, b.shape)
        np.testing.assert_allclose(
            tf.cast(a, tf.float32), b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max())
        )


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float32, 1e-5), (tf.bfloat16, 0.02)])
@pytest.mark.parametrize("drops", [False, True])
def test_attention_is_the_softmax_times_the_values(drops, dtype, tolerance):
    kept = KEPT / 0.5 if drops else np.ones(KEPT.shape)
    inputs = [tf.cast(tf.random.normal([2, 5, 3, 4]), dtype) for _ in range(3)]
    check(
        lambda *x: tpu_attention(*x, tf.constant(MASK), lambda p: p * tf.cast(kept, p.dtype)),
        lambda *x: textbook_attention(*x, kept=tf.cast(kept, tf.float32)),
        inputs,
        tolerance,
    )


def test_attention_of_large_scores_is_finite():
    query = tf.constant([[[[300.0] * 4], [[-300.0] * 4]]])
    value = tf.constant([[[[1.0] * 4], [[2.0] * 4]]])
    context = compiled(
        lambda q, v: tpu_attention(q, q, v, tf.zeros([1, 1, 1, 2]), lambda p: p), query, value
    )
    np.testing.assert_array_equal(context, value)


def test_sums_over_sequences_accumulate_in_float32():
    sums = column_sums(tf.ones([3, 200, 2], tf.bfloat16))  # In bfloat16, 256 + 1 is 256.
    assert sums.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(sums, tf.float32), [600, 600])


def test_cross_entropy_does_not_gather_from_the_logits():
    labels = tf.constant([1, 0, 6, 3, 3, 5])

    def losses(products, bias):
        return cross_entropy(products, bias, labels)[0]

    inputs = [50 * tf.random.normal([6, 7]), 20 * tf.random.normal([7])]
    check(
        losses,
        lambda x, b: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x + b),
        inputs,
        1e-5,
    )
    with graph_mode(GraphMode.TPU):
        graph = tf.function(losses, autograph=False).get_concrete_function(*inputs).graph
    assert "GatherV2" not in {operation.type for operation in graph.get_operations()}


@pytest.mark.parametrize(
    "recompute", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["kept", "recomputed"]
)
def test_the_model_has_the_same_losses_gradients_and_dropout_masks(
    small_config, small_inputs, recompute
):
    config = dataclasses.replace(
        small_config,
        num_hidden_layers=2 if recompute else 1,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    model = AlbertPretrainer(config, "float32")

    with graph_mode(GraphMode.CPU):
        loss, expected = loss_and_gradients(model, small_inputs)
    tpu_loss, found = compiled(lambda: loss_and_gradients(model, small_inputs, recompute))
    np.testing.assert_allclose(loss, tpu_loss, rtol=1e-6)
    for name, a, b in zip(model.named_weights(), expected, found):
        difference = np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)
        # The true gradient of a key's bias is zero; the rest is rounding.
        assert difference < 1e-5 or "key/bias" in name, (name, difference)
