# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels: hand-written gradients against automatic ones, compiled against plain operations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.attention import attention_probs, project_heads
from albert_tf.modeling.kernels.cross_entropy import cross_entropy
from albert_tf.modeling.kernels.dense import (
    ACTIVATIONS,
    affine_terms,
    cast_for_layers,
    gelu,
    layer_norm,
)
from albert_tf.modeling.kernels.graph_mode import GraphMode, current_mode, graph_mode


@pytest.fixture(params=["PLAIN", "CPU"])
def mode(request):
    with graph_mode(GraphMode[request.param]):
        yield


def textbook_layer_norm(x, gamma, beta):
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-12) * gamma + beta


def textbook_gelu(x):
    return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def check(function, textbook, inputs, tolerance=1e-5):
    """Compares value and gradients of `function` in float32 with `textbook` in float64."""

    def run(function, inputs, weights):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = function(*inputs)
            loss = tf.reduce_sum(y * weights)
        return y, tape.gradient(loss, inputs)

    shape = function(*inputs).shape
    weights = tf.random.normal(shape)
    value, gradients = run(function, inputs, weights)
    expected, expected_gradients = run(
        textbook, [tf.cast(x, tf.float64) for x in inputs], tf.cast(weights, tf.float64)
    )
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance)
    for gradient, truth in zip(gradients, expected_gradients):
        assert gradient.shape == truth.shape
        scale = max(1.0, np.abs(truth).max())
        np.testing.assert_allclose(gradient, truth, rtol=0, atol=tolerance * scale)


def normal(*shape):
    return tf.random.normal(shape)


@pytest.mark.usefixtures("mode")
class TestKernels:
    def test_layer_norm_of_a_sum_with_bias_and_residual(self):
        check(
            lambda x, c, r, g, b: layer_norm([x, c, r], g, b),
            lambda x, c, r, g, b: textbook_layer_norm(x + c + r, g, b),
            [normal(5, 24), normal(24), 2 * normal(5, 24), normal(24), normal(24)],
        )

    def test_dense_layer_and_gelu(self):
        def textbook(x, kernel, bias):
            return textbook_gelu(tf.matmul(x, kernel) + bias)

        check(
            lambda *inputs: gelu(affine_terms(*inputs)),
            textbook,
            [normal(5, 8), normal(8, 6), normal(6)],
        )

    def test_queries_keys_and_values_by_head(self):
        count = 1 if current_mode() is GraphMode.PLAIN else 3

        def textbook(x, kernel, bias):
            parts = tf.reshape(tf.matmul(x, kernel) + bias, [4, 5, count, 2, 2])
            return tf.transpose(parts, [2, 0, 3, 1, 4])

        check(
            lambda *inputs: tf.stack(project_heads(*inputs, 5, 2, 2)),
            textbook,
            [normal(20, 8), normal(8, 4 * count), normal(4 * count)],
        )

    def test_gelu_of_extreme_values_is_finite(self):
        for dtype in (tf.float32, tf.bfloat16, tf.float16):
            x = tf.constant([-6e4, -20.0, 0.0, 20.0, 6e4], dtype)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = gelu([x])
            slope = tape.gradient(y, x)
            assert y.dtype == slope.dtype == dtype
            np.testing.assert_array_equal(y, tf.nn.relu(x))
            np.testing.assert_array_equal(tf.cast(slope, tf.float32), [0, 0, 0.5, 1, 1])

    def test_attention_probs(self):
        mask = tf.constant([0.0, 0.0, -10000.0, 0.0])[None, None, None]

        def textbook(query, key):
            scores = tf.matmul(query, key, transpose_b=True) / 8**0.5
            return tf.nn.softmax(scores + tf.cast(mask, tf.float64))

        check(
            lambda query, key: attention_probs(query, key, mask),
            textbook,
            [normal(2, 3, 4, 8), normal(2, 3, 4, 8)],
        )

    def test_attention_probs_of_float16_may_come_from_products_beyond_its_range(self):
        query = tf.constant([[60.0] * 64, [-60.0] * 64], tf.float16)[None, None]
        key = tf.constant([[60.0] * 64, [59.0] * 64, [60.0] * 64], tf.float16)[None, None]
        mask = tf.constant([0.0, 0.0, -10000.0])[None, None, None]
        assert not np.isfinite(tf.matmul(query, key, transpose_b=True)).any()
        with tf.GradientTape() as tape:
            tape.watch(query)
            probs = attention_probs(query, key, mask)
            loss = tf.reduce_sum(probs[..., 0])
        assert probs.dtype == tf.float16
        # The scores are 8 * 60 * (60, 59) and their negatives: apart by 480.
        np.testing.assert_array_equal(probs[0, 0], [[1, 0, 0], [0, 1, 0]])
        assert np.isfinite(tape.gradient(loss, query)).all()

    def test_attention_probs_of_float16_are_those_of_float32(self):
        query, key = (tf.cast(2 * normal(2, 3, 64, 16), tf.float16) for _ in range(2))
        mask = tf.where(tf.random.uniform([2, 1, 1, 64]) < 0.2, -10000.0, 0.0)
        probs = attention_probs(query, key, mask)
        exact = [tf.cast(x, tf.float32) for x in (query, key)]
        expected = tf.nn.softmax(tf.matmul(*exact, transpose_b=True) / 4 + mask)
        # A score of 60 is rounded by 0.016, and probabilities below 6e-5 have fewer bits.
        np.testing.assert_allclose(tf.cast(probs, tf.float32), expected, rtol=0.03, atol=1e-6)

    @pytest.mark.parametrize("mode", ["PLAIN", "CPU", "XLA"], indirect=True)
    def test_cross_entropy(self):
        labels = tf.constant([1, 0, 6, 3, 3, 5])

        def losses(products, bias):
            return cross_entropy(products, bias, labels)[0]

        def textbook(products, bias):
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, products + bias)

        check(losses, textbook, [50 * normal(6, 7), 20 * normal(7)])

    @pytest.mark.parametrize("mode", ["PLAIN", "CPU", "XLA"], indirect=True)
    def test_cross_entropy_tells_which_labels_are_the_most_probable(self):
        # Of equal logits, the first one counts.
        rows = [[1.0, 2, 0], [1, 2, 0], [3, 1, 3], [3, 1, 3], [0, 2, 2], [0, 2, 2]]
        products, bias = tf.constant(rows, tf.bfloat16), tf.constant([2.0, 0, 0])
        losses, correct = cross_entropy(products, bias, tf.constant([0, 1, 2, 0, 0, 1]))
        assert losses.dtype == tf.float32
        np.testing.assert_array_equal(correct, [True, False, False, True, True, False])

    def test_cross_entropy_of_bfloat16_is_that_of_float32(self):
        products, bias = tf.cast(4 * normal(20, 50), tf.bfloat16), normal(50)
        labels = tf.range(20)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([products, bias])
            exact = tf.cast(products, tf.float32) + bias
            expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, exact)
            losses, _ = cross_entropy(products, bias, labels)
        np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-5)
        gradients = tape.gradient(losses, [products, bias])
        assert [gradient.dtype for gradient in gradients] == [tf.bfloat16, tf.float32]
        truth = tape.gradient(expected, [products, bias])
        for gradient, true, tolerance in zip(gradients, truth, (0.004, 1e-5)):
            np.testing.assert_allclose(
                tf.cast(gradient, tf.float32), tf.cast(true, tf.float32), atol=tolerance
            )

    @pytest.mark.parametrize(("dtype", "rtol"), [(tf.bfloat16, 0.004), (tf.float16, 0.0005)])
    def test_layer_norm_of_16_bits_computes_in_float32(self, dtype, rtol):
        x = tf.cast(1000 + normal(4, 64), dtype)  # In float16 the squares would be infinite.
        gamma, beta = tf.ones([64]), tf.zeros([64])
        expected = textbook_layer_norm(tf.cast(x, tf.float64), 1.0, 0.0)
        y = layer_norm([x], gamma, beta)
        assert y.dtype == dtype
        np.testing.assert_allclose(tf.cast(y, tf.float64), expected, rtol=rtol, atol=1e-5)

    def test_gradients_of_a_shared_weight_are_summed_in_float32(self):
        weight = tf.constant([1.0, 2.0])
        with tf.GradientTape() as tape:
            tape.watch(weight)
            copies = [copy for (copy,) in cast_for_layers((weight,), tf.bfloat16, 300)]
            # In bfloat16, 256 + 1 is 256.
            loss = tf.add_n([tf.reduce_sum(tf.cast(copy, tf.float32)) for copy in copies])
        gradient = tape.gradient(loss, weight)
        assert {copy.dtype for copy in copies} == {tf.bfloat16}
        assert gradient.dtype == tf.float32
        np.testing.assert_array_equal(gradient, [300, 300])

    def test_activations_are_those_of_their_names(self):
        x = tf.constant([1.0, -3.0])
        for name, expected in {
            "gelu": [0.8411920, -0.0036374],  # The tanh approximation.
            "gelu_erf": [0.8413447, -0.0040497],
            "relu": [1, 0],
            "tanh": np.tanh([1, -3]),
            "linear": [1, -3],
        }.items():
            values = ACTIVATIONS[name]([x])
            np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(ACTIVATIONS["relu"]([x[None], x + 1]), [[3, 0]])
