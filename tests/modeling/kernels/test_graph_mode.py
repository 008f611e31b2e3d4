# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the modes promise about gradients, compiled functions and graphs."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from albert_tf.errors import AlbertError
from albert_tf.modeling.classifier import AlbertClassifier, AlbertMultipleChoice
from albert_tf.modeling.kernels.dense import affine, gelu
from albert_tf.modeling.kernels.graph_mode import GraphMode, TrainingStep, graph_mode, training_step
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.modeling.question_answering import AlbertBeamAnswerer, AlbertSpanAnswerer

MODELS = {
    "classifier": lambda config: AlbertClassifier(config, 3),
    "multiple choice": AlbertMultipleChoice,
    "pretrainer": AlbertPretrainer,
    "spans": AlbertSpanAnswerer,
    "beam": AlbertBeamAnswerer,
}


def loss_of(name, model, inputs):
    inputs = {**inputs, "start_positions": tf.constant([5, 0])}
    if name == "multiple choice":
        inputs = {k: v[None] for k, v in inputs.items()}
    if name == "pretrainer":
        inputs["masked_lm_ids"] = inputs["masked_lm_positions"]
    with training_step(TrainingStep(tf.constant([1, 2]))):  # The same dropout in all calls.
        outputs = model(inputs, training=True)
    used = [
        tf.exp(value) if "log_probs" in name else value
        for name, value in outputs.items()
        if name not in ("pooled_output", "mlm_correct")
    ]
    return tf.add_n([tf.reduce_sum(tf.square(value)) for value in used])


@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_penalty_has_the_gradient_of_finite_differences(
    name, small_config, small_inputs
):
    model = MODELS[name](dataclasses.replace(small_config, initializer_range=0.1))
    weights = list(model.trainable_variables)

    def penalty():
        with tf.GradientTape() as tape:
            loss = loss_of(name, model, small_inputs)
        gradients = tape.gradient(loss, weights)
        return tf.add_n([tf.reduce_sum(tf.square(g)) for g in gradients if g is not None])

    with tf.GradientTape() as tape:
        value = penalty()
    gradients = [g if g is None else tf.convert_to_tensor(g) for g in tape.gradient(value, weights)]
    # Along the gradient, its slope is the gradient's norm.
    norm = float(tf.linalg.global_norm(gradients))
    step, values = 0.01, []
    for sign in (-1, 1):
        for weight, gradient in zip(weights, gradients):
            if gradient is not None:
                weight.assign_add(sign * (1 if sign < 0 else 2) * step / norm * gradient)
        values.append(float(penalty()))
    assert (values[1] - values[0]) / (2 * step) == pytest.approx(norm, rel=0.02)


@pytest.mark.parametrize("mode", [GraphMode.CPU, GraphMode.GPU, GraphMode.XLA])
def test_other_modes_refuse_gradients_of_gradients(mode):
    x = tf.constant([[1.0, 2.0]])
    with graph_mode(mode), tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = gelu([x])
        with pytest.raises(AlbertError, match=rf"mode {mode.name} has no gradients of gradients"):
            tape.gradient(y, x)


def test_a_model_that_is_called_compiles_nothing_for_each_length(small_config):
    model = AlbertClassifier(small_config, 2)
    known = []
    for length in (3, 4, 5):
        with tf.GradientTape() as tape:
            logits = model({"input_word_ids": tf.ones([2, length], tf.int32)}, training=True)
        tape.gradient(logits["logits"], model.trainable_variables)
        known.append(len(context.context().list_function_names()))
    assert known[0] == known[1] == known[2]


@pytest.fixture
def inputs():
    return tf.constant([[1.0, 2.0]]), tf.constant([[3.0], [4.0]]), tf.constant([5.0])


def gradient(*inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = affine(*inputs)
    return tape.gradient(y, inputs)


@pytest.mark.parametrize("function", [affine, gradient])
def test_a_graph_with_hand_written_gradients_is_freed(function, inputs):
    with graph_mode(GraphMode.CPU):
        traced = tf.function(function, autograph=False)
        graph = weakref.ref(traced.get_concrete_function(*inputs).graph)
    del traced
    gc.collect()
    assert graph() is None


def test_gradients_flow_through_a_function_that_is_already_traced(inputs):
    with graph_mode(GraphMode.CPU):
        inner = tf.function(affine, autograph=False)
        inner(*inputs)

        @tf.function(autograph=False)
        def outer(*values):
            with tf.GradientTape() as tape:
                tape.watch(values)
                y = inner(*values)
            return tape.gradient(y, values)

        found = outer(*inputs)
    for a, b in zip(found, gradient(*inputs)):
        np.testing.assert_array_equal(a, b)


def test_cpu_kernels_take_any_number_of_shapes_without_a_warning(caplog):
    with graph_mode(GraphMode.CPU):
        for rows in range(1, 12):
            gelu([tf.ones([rows, 4])])
    assert not [record for record in caplog.records if "retracing" in record.getMessage()]


def test_only_the_mode_cpu_compiles_parts_of_a_graph(small_config, small_inputs):
    model = AlbertClassifier(small_config, 2)

    def compiled_parts(mode):
        with graph_mode(mode):
            forward = tf.function(lambda inputs: model(inputs, training=True)["logits"])
            graph = forward.get_concrete_function(small_inputs).graph.as_graph_def()
        return sum(f.attr["_XlaMustCompile"].b for f in graph.library.function)

    assert [compiled_parts(mode) > 0 for mode in GraphMode] == [
        mode is GraphMode.CPU for mode in GraphMode
    ]
