# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels: hand-written gradients against automatic ones, fused against plain operations."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.activations import gelu, get_activation
from albert_tf.modeling.kernels.attention_probs import attention_probs
from albert_tf.modeling.kernels.cross_entropy import cross_entropy
from albert_tf.modeling.kernels.fusion import fused, row_sums
from albert_tf.modeling.kernels.graph_mode import graph_mode
from albert_tf.modeling.kernels.layer_norm import layer_norm
from albert_tf.modeling.kernels.linear import affine, affine_terms, shared
from albert_tf.modeling.kernels.split_heads import split_heads


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


@pytest.mark.parametrize("training", [False, True])
class TestFusedFunctions:
    def test_layer_norm(self, training):
        check(
            lambda x, g, b: layer_norm([x], g, b, training=training),
            textbook_layer_norm,
            [3 + 2 * normal(5, 24), normal(24), normal(24)],
        )

    def test_layer_norm_of_a_sum_with_bias_and_residual(self, training):
        check(
            lambda x, c, r, g, b: layer_norm([x, c, r], g, b, training=training),
            lambda x, c, r, g, b: textbook_layer_norm(x + c + r, g, b),
            [normal(5, 24), normal(24), 2 * normal(5, 24), normal(24), normal(24)],
        )

    def test_gelu(self, training):
        check(lambda x: gelu([x], training), textbook_gelu, [4 * normal(50, 20)])

    def test_gelu_of_a_sum_with_bias(self, training):
        inputs = [4 * normal(50, 20), normal(20)]
        check(lambda *terms: gelu(terms, training), lambda x, b: textbook_gelu(x + b), inputs)

    def test_dense_layer_and_gelu(self, training):
        def textbook(x, kernel, bias):
            return textbook_gelu(tf.matmul(x, kernel) + bias)

        check(
            lambda *inputs: gelu(affine_terms(*inputs, training), training),
            textbook,
            [normal(5, 8), normal(8, 6), normal(6)],
        )

    @pytest.mark.parametrize("width", [7, 24])
    def test_row_sums(self, training, width):
        x = normal(5, width)
        sums = fused(row_sums)(x, training=training)
        np.testing.assert_allclose(sums, np.sum(x, axis=1, keepdims=True), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("bias", [[], [12]])
    def test_split_heads(self, training, bias):
        def textbook(*terms):
            parts = tf.reshape(functools.reduce(tf.add, terms), [4, 5, 3, 2, 2])
            return tf.transpose(parts, [2, 0, 3, 1, 4])

        check(
            lambda *terms: tf.stack(split_heads(terms, 5, 2, 2, training)),
            textbook,
            [normal(20, 12), *(normal(size) for size in bias)],
        )

    def test_gelu_of_extreme_values_is_finite(self, training):
        for dtype in (tf.float32, tf.bfloat16, tf.float16):
            x = tf.constant([-6e4, -20.0, 0.0, 20.0, 6e4], dtype)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = gelu([x], training)
            slope = tape.gradient(y, x)
            assert y.dtype == slope.dtype == dtype
            np.testing.assert_array_equal(y, tf.nn.relu(x))
            np.testing.assert_array_equal(tf.cast(slope, tf.float32), [0, 0, 0.5, 1, 1])

    def test_attention_probs(self, training):
        mask = tf.constant([0.0, 0.0, -10000.0, 0.0])[None, None, None]

        def textbook(query, key):
            scores = tf.matmul(query, key, transpose_b=True) / 8**0.5
            return tf.nn.softmax(scores + tf.cast(mask, tf.float64))

        check(
            lambda query, key: attention_probs(query, key, mask, training),
            textbook,
            [normal(2, 3, 4, 8), normal(2, 3, 4, 8)],
        )

    def test_attention_probs_of_bfloat16_are_those_of_float32(self, training):
        query, key = (tf.cast(2 * normal(2, 3, 64, 16), tf.bfloat16) for _ in range(2))
        mask = tf.where(tf.random.uniform([2, 1, 1, 64]) < 0.2, -10000.0, 0.0)
        scores = tf.cast(tf.matmul(query, key, transpose_b=True) / 4, tf.float32)
        probs = tf.function(attention_probs, autograph=False)(query, key, mask, training)
        assert probs.dtype == tf.bfloat16
        np.testing.assert_allclose(
            tf.cast(probs, tf.float32), tf.nn.softmax(scores + mask), rtol=0, atol=0.02
        )
        np.testing.assert_allclose(tf.reduce_sum(tf.cast(probs, tf.float32), -1), 1, atol=0.01)

    def test_attention_probs_of_float16_may_come_from_products_beyond_its_range(self, training):
        query = tf.constant([[60.0] * 64, [-60.0] * 64], tf.float16)[None, None]
        key = tf.constant([[60.0] * 64, [59.0] * 64, [60.0] * 64], tf.float16)[None, None]
        mask = tf.constant([0.0, 0.0, -10000.0])[None, None, None]
        assert not np.isfinite(tf.matmul(query, key, transpose_b=True)).any()
        with tf.GradientTape() as tape:
            tape.watch(query)
            probs = attention_probs(query, key, mask, training)
            loss = tf.reduce_sum(probs[..., 0])
        assert probs.dtype == tf.float16
        # The scores are 8 * 60 * (60, 59) and their negatives: apart by 480.
        np.testing.assert_array_equal(probs[0, 0], [[1, 0, 0], [0, 1, 0]])
        assert np.isfinite(tape.gradient(loss, query)).all()

    def test_attention_probs_of_float16_are_those_of_float32(self, training):
        query, key = (tf.cast(2 * normal(2, 3, 64, 16), tf.float16) for _ in range(2))
        mask = tf.where(tf.random.uniform([2, 1, 1, 64]) < 0.2, -10000.0, 0.0)
        probs = attention_probs(query, key, mask, training)
        exact = [tf.cast(x, tf.float32) for x in (query, key)]
        expected = tf.nn.softmax(tf.matmul(*exact, transpose_b=True) / 4 + mask)
        # A score of 60 is rounded by 0.016, and probabilities below 6e-5 have fewer bits.
        np.testing.assert_allclose(tf.cast(probs, tf.float32), expected, rtol=0.03, atol=1e-6)

    @pytest.mark.parametrize("mode", [{}, {"compiled": True}])
    def test_cross_entropy(self, training, mode):
        labels = tf.constant([1, 0, 6, 3, 3, 5])

        def losses(products, bias):
            with graph_mode(**mode):
                return cross_entropy(products, bias, labels, training)[0]

        def textbook(products, bias):
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, products + bias)

        check(losses, textbook, [50 * normal(6, 7), 20 * normal(7)])

    @pytest.mark.parametrize("mode", [{}, {"compiled": True}])
    def test_cross_entropy_tells_which_labels_are_the_most_probable(self, training, mode):
        products = tf.constant([[1.0, 2, 0], [1, 2, 0], [3, 1, 3], [3, 1, 3]], tf.bfloat16)
        bias = tf.constant([2.0, 0, 0])
        with graph_mode(**mode):
            losses, correct = cross_entropy(products, bias, tf.constant([0, 1, 2, 0]), training)
        assert losses.dtype == tf.float32
        np.testing.assert_array_equal(correct, [True, False, False, True])

    @pytest.mark.parametrize("mode", [{}, {"compiled": True}])
    def test_of_equal_logits_only_the_first_counts_as_the_most_probable(self, training, mode):
        labels = tf.constant([0, 1, 2, 2])
        products = tf.constant([[1.0, 1, 1], [1, 1, 1], [1, 1, 1], [0, 1, 1]])
        with graph_mode(**mode):
            _, correct = cross_entropy(products, tf.zeros([3]), labels, training)
        np.testing.assert_array_equal(correct, [True, False, False, False])

    def test_cross_entropy_of_bfloat16_is_that_of_float32(self, training):
        products, bias = tf.cast(4 * normal(20, 50), tf.bfloat16), normal(50)
        labels = tf.range(20)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([products, bias])
            exact = tf.cast(products, tf.float32) + bias
            expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, exact)
            losses, _ = cross_entropy(products, bias, labels, training)
        np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-5)
        gradients = tape.gradient(losses, [products, bias])
        assert [gradient.dtype for gradient in gradients] == [tf.bfloat16, tf.float32]
        truth = tape.gradient(expected, [products, bias])
        for gradient, true, tolerance in zip(gradients, truth, (0.004, 1e-5)):
            np.testing.assert_allclose(
                tf.cast(gradient, tf.float32), tf.cast(true, tf.float32), atol=tolerance
            )

    @pytest.mark.parametrize(("dtype", "rtol"), [(tf.bfloat16, 0.004), (tf.float16, 0.0005)])
    def test_layer_norm_of_16_bits_computes_in_float32(self, training, dtype, rtol):
        x = tf.cast(1000 + normal(4, 64), dtype)  # In float16 the squares would be infinite.
        gamma, beta = tf.ones([64]), tf.zeros([64])
        expected = textbook_layer_norm(tf.cast(x, tf.float64), 1.0, 0.0)
        y = layer_norm([x], gamma, beta, training=training)
        assert y.dtype == dtype
        np.testing.assert_allclose(tf.cast(y, tf.float64), expected, rtol=rtol, atol=1e-5)


def test_affine():
    check(affine, lambda x, k, b: tf.matmul(x, k) + b, [normal(5, 8), normal(8, 6), normal(6)])


def test_gradients_of_a_shared_weight_are_summed_in_float32():
    weight = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(weight)
        copies = [copy for (copy,) in shared([weight], tf.bfloat16, 300)]
        # In bfloat16, 256 + 1 is 256.
        loss = tf.add_n([tf.reduce_sum(tf.cast(copy, tf.float32)) for copy in copies])
    gradient = tape.gradient(loss, weight)
    assert {copy.dtype for copy in copies} == {tf.bfloat16}
    assert gradient.dtype == tf.float32
    np.testing.assert_array_equal(gradient, [300, 300])


def test_gelu_is_the_tanh_approximation():
    values = get_activation("gelu")([tf.constant([1.0, -3.0])], False)
    np.testing.assert_allclose(values, [0.8411920, -0.0036374], rtol=0, atol=1e-6)


def test_other_activations_are_those_of_their_names():
    x = tf.constant([-2.0, 0.5])
    np.testing.assert_allclose(get_activation("relu")([x], True), [0, 0.5])
    np.testing.assert_allclose(get_activation("tanh")([x], True), np.tanh([-2, 0.5]), rtol=1e-6)
    np.testing.assert_allclose(get_activation("linear")([x], True), [-2, 0.5])
    np.testing.assert_allclose(get_activation("relu")([x[None], x + 1], True), [[0, 2]])
    erf = get_activation("gelu_erf")([tf.constant([1.0, -3.0])], True)
    np.testing.assert_allclose(erf, [0.8413447, -0.0040497], rtol=0, atol=1e-6)


def test_fused_kernels_take_any_number_of_shapes_without_a_warning(caplog):
    for rows in range(1, 12):
        gelu([normal(rows, 4)], training=True)
    assert not [record for record in caplog.records if "retracing" in record.getMessage()]
