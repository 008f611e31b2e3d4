# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dropout: statistics of the masks, and what they depend on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.kernels.graph_mode import GraphMode, TrainingStep, graph_mode, training_step


@pytest.fixture(autouse=True, params=[GraphMode.CPU, GraphMode.GPU], ids=lambda mode: mode.name)
def mode(request):
    """Both ways to draw a mask. A CPU can also run the operations that a GPU runs without XLA."""
    with graph_mode(request.param):
        yield request.param


def dropout_seed(seed):
    return training_step(TrainingStep(tf.convert_to_tensor(seed)))


def mask(shape, rate=0.1, seed=(1, 2)):
    with dropout_seed(tf.constant(seed)):
        return (dropout(tf.ones(shape), rate, training=True) == 0).numpy()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_elements_are_zeroed_at_the_rate_and_the_rest_is_scaled(rate):
    with dropout_seed(tf.constant([3, 4])):
        y = dropout(tf.fill([1000, 1000], 3.0), rate, training=True).numpy()
    kept = y[y != 0]
    # Five deviations of a binomial share.
    assert abs(np.mean(y == 0) - rate) < 5 * np.sqrt(rate * (1 - rate)) / 1000
    np.testing.assert_allclose(kept, 3 / (1 - rate), rtol=1e-6)


def test_masks_are_independent_within_and_between_calls():
    deviation = 1 / 1000  # of a correlation of 10^6 pairs
    a = mask([1000, 1000], 0.5)
    for lag in (1, 2, 3, 4, 7, 8, 16, 64, 128, 768, 1000, 3072):
        flat = a.ravel()
        assert abs(np.corrcoef(flat[:-lag], flat[lag:])[0, 1]) < 5 * deviation, lag
    for seed in ((1, 3), (2, 2), (2, 1), (1, 2 + 2**16), (-1, 2)):
        b = mask([1000, 1000], 0.5, seed)
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 * deviation, seed
    with dropout_seed(tf.constant([1, 2])):
        x = tf.ones([1000, 1000])
        first, second = ((dropout(x, 0.5, True) == 0).numpy().ravel() for _ in range(2))
    np.testing.assert_array_equal(first, a.ravel())
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 * deviation


def test_rows_and_columns_have_binomial_counts():
    a = mask([1000, 1000])
    for counts in (a.sum(0), a.sum(1), a.reshape(-1, 8, 125).sum(2).ravel()):
        trials = a.size / counts.size
        chi_square = ((counts - trials * 0.1) ** 2).sum() / (trials * 0.09)
        # The mean is the number of counts n, the deviation √(2 n).
        assert abs(chi_square - counts.size) < 5 * np.sqrt(2 * counts.size)


def test_graphs_and_xla_draw_the_same_masks_as_eager_mode(mode):
    def draw(seed):
        with dropout_seed(seed):
            return [dropout(tf.ones([40, 30]), 0.3, training=True) for _ in range(2)]

    seed = tf.constant([5, 6])
    # On a GPU programs compiled by XLA draw other masks.
    for jit in (None, True) if mode is GraphMode.CPU else (None,):
        for a, b in zip(draw(seed), tf.function(draw, autograph=False, jit_compile=jit)(seed)):
            np.testing.assert_array_equal(a, b)


def test_gradient_uses_the_mask_of_the_forward_pass():
    x = tf.random.normal([30, 40])
    with dropout_seed(tf.constant([1, 2])), tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.4, training=True)
    np.testing.assert_allclose(tape.gradient(y, x), np.where(y == 0, 0, 1 / 0.6), rtol=1e-6)


@pytest.mark.parametrize("mode", [GraphMode.GPU], indirect=True)
def test_on_a_gpu_the_backward_pass_draws_the_mask_again_instead_of_keeping_it():
    @tf.function(autograph=False)
    def gradient(x, seed):
        with dropout_seed(seed), tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.sin(dropout(x, 0.5, True))
        return tape.gradient(y, x)

    arguments = tf.ones([10, 10]), tf.constant([1, 2])
    context.enable_graph_collection()
    try:
        gradient(*arguments)
        (graphs,) = context.context().export_run_metadata().function_graphs
    finally:
        context.disable_graph_collection()
    optimized = graphs.post_optimization_graph.node
    drawn = [n for n in optimized if n.op == "StatelessRandomUniformFullIntV2"]
    assert [n.attr["dtype"].type for n in drawn].count(tf.uint32.as_datatype_enum) == 2


@pytest.mark.parametrize("shape", [[2**15, 2**16], [2, 2, 2**15, 2**15]])
def test_tensors_may_have_two_to_the_thirty_one_elements(shape):
    # Traced, as it would take gigabytes to run.
    def draw(x):
        with dropout_seed(tf.constant([1, 2])):
            return dropout(x, 0.5, True)

    traced = tf.function(draw, autograph=False).get_concrete_function(
        tf.TensorSpec(shape, tf.bfloat16)
    )
    assert traced.output_shapes == shape


def test_nothing_is_added_at_rate_zero_or_outside_of_training():
    x = tf.ones([3])
    assert dropout(x, 0.0, training=True) is x
    assert dropout(x, 0.5, training=False) is x


def test_sixteen_bit_types_keep_their_type():
    for dtype in (tf.bfloat16, tf.float16):
        y = dropout(tf.ones([100], dtype), 0.5, training=True)
        assert y.dtype == dtype
        assert set(tf.cast(y, tf.float32).numpy()) == {0.0, 2.0}
