# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Recomputation changes what is kept, but neither losses nor gradients."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.kernels.graph_mode import GraphMode, TrainingStep, graph_mode, training_step
from albert_tf.modeling.kernels.recompute import recomputed
from albert_tf.modeling.pretrainer import AlbertPretrainer
from tests.modeling.conftest import loss_and_gradients


@pytest.fixture
def config(small_config):
    """Three layers that share the attention and have feed-forward blocks of their own."""
    return dataclasses.replace(
        small_config,
        num_hidden_layers=3,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        parameter_sharing="attention",
    )


@pytest.fixture(autouse=True)
def mode():
    with graph_mode(GraphMode.CPU):
        yield


def recomputing(wanted):
    return training_step(TrainingStep(tf.constant([1, 2]), recompute=wanted))


@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float32", 0.0), ("mixed_bfloat16", 0.01), ("mixed_float16", 0.002)]
)
def test_losses_and_gradients_are_the_same(config, small_inputs, policy, tolerance):
    model = AlbertPretrainer(config, policy)
    loss, kept = loss_and_gradients(model, small_inputs)
    again, computed = loss_and_gradients(model, small_inputs, recompute=True)
    assert loss == again
    for name, a, b in zip(model.named_weights(), kept, computed):
        # In 16 bits, sums of the same gradients in another order are rounded otherwise.
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(a).max(), err_msg=name)
    other, _ = loss_and_gradients(model, small_inputs, recompute=True, seed=(1, 3))
    assert other != loss  # Dropout was on.


def test_masks_after_a_recomputed_function_are_the_same_as_without_recomputation():
    def draw(wanted):
        with recomputing(wanted):
            (x,) = recomputed(lambda x: dropout(x, 0.5, True), tf.ones([20, 30]))
            return x, dropout(tf.ones([20, 30]), 0.5, True)

    for a, b in zip(draw(False), draw(True)):
        np.testing.assert_array_equal(a, b)


def test_the_backward_pass_finishes_a_layer_before_it_starts_the_next():
    """Otherwise inner values would pile up, waiting for the gradients of weights."""

    @tf.function(autograph=False)
    def backward(x, weight):
        with tf.GradientTape() as tape, recomputing(True):
            tape.watch([x, weight])
            y, weights = recomputed(lambda x, w: tf.matmul(x, w[0], name="lower"), x, (weight,))
            y, _ = recomputed(lambda x, w: tf.matmul(x, w[0], name="upper"), y, weights)
        return tape.gradient(y, [x, weight])

    graph = backward.get_concrete_function(tf.ones([3, 4]), tf.ones([4, 4])).graph
    again = graph.get_operation_by_name("lower_1")
    needed, todo = set(), [again]
    while todo:
        op = todo.pop()
        if op.name not in needed:
            needed.add(op.name)
            todo += [*(value.op for value in op.inputs), *op.control_inputs]
    assert {"gradient_tape/upper_1/MatMul", "gradient_tape/upper_1/MatMul_1"} <= needed, needed


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_graph_computes_the_layers_again(config, small_inputs, jit):
    def products(wanted):
        function = tf.function(
            lambda: loss_and_gradients(model, small_inputs, wanted), jit_compile=jit
        )
        if jit:
            text = function.experimental_get_compiler_ir()(stage="optimized_hlo")
            return text.count(" dot(") + text.count("custom-call(")
        graph = function.get_concrete_function().graph.as_graph_def()
        return sum(node.op in ("MatMul", "BatchMatMulV2") for node in graph.node)

    model = AlbertPretrainer(config, "float32")
    assert products(True) - products(False) >= 5 * config.num_hidden_layers
