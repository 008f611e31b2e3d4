# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Graphs that only answer: the model's outputs, in forms that the graph optimizer fuses."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.export.hub import build_encoder, encoder_export, probe_batches
from albert_tf.export.model_card import CARD_FILE, ModelFacts
from albert_tf.export.saved_model import export_in, publish
from albert_tf.export.self_check import REPORT_FILE, Probe, largest_difference, self_check
from albert_tf.io import files, folders
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.training.strategy import fast_precisions
from tests.support.builders import tiny_config
from tests.support.self_checks import checked_in_this_process

CONFIG = tiny_config(100, hidden_size=32, num_hidden_layers=2, intermediate_size=64)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    model = AlbertEncoder(CONFIG, dtype="float32")
    for variable in model.named_weights().values():
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    return model


def optimized_operations(function, inputs):
    """Returns the operations of a function's graph as TensorFlow runs it, with what was fused."""
    from tensorflow.python.eager import context

    context.context().enable_graph_collection()
    try:
        function(**inputs)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_graph_collection()
    return [
        (node.op, [name.decode() for name in node.attr["fused_ops"].list.s])
        for collected in graphs
        for node in collected.post_optimization_graph.node
    ]


def test_the_outputs_are_those_of_the_model(model):
    serve = build_encoder(model)[1]["serving_default"]
    for inputs in probe_batches(CONFIG):
        found = serve(**{name: tf.constant(value) for name, value in inputs.items()})
        expected = model(inputs)
        for name in ("pooled_output", "sequence_output"):
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=2e-6)


def test_no_weights_are_joined_in_a_call(model):
    serve = build_encoder(model)[1]["serving_default"]
    functions = serve.graph.as_graph_def().library.function
    operations = [node.op for function in functions for node in function.node_def]
    assert "MatMul" in operations and "ConcatV2" not in operations


def fused_activations(serve):
    """Counts the products of an encoder that compute the activation too."""
    inputs = {name: tf.constant(value) for name, value in probe_batches(CONFIG)[0].items()}
    fused = [names for op, names in optimized_operations(serve, inputs) if op == "_FusedMatMul"]
    return fused.count(["BiasAdd", "GeluApproximate"])


def test_the_activation_is_fused_into_its_product(model):
    serve = build_encoder(model)[1]["serving_default"]
    assert fused_activations(serve) == CONFIG.num_hidden_layers


@pytest.fixture(scope="module")
def bfloat16(model, tmp_path_factory):
    """The folder of an export in bfloat16."""
    export = export_in(
        "mixed_bfloat16", model, lambda dtype: AlbertEncoder(CONFIG, dtype), encoder_export
    )
    path = str(tmp_path_factory.mktemp("bfloat16") / "saved")
    with checked_in_this_process(), folders.new_folder(path) as folder:
        publish(export, folder, ModelFacts("small", CONFIG))
    return path


def test_bfloat16_returns_float32_near_that_of_the_model(model, bfloat16):
    loaded = tf.saved_model.load(bfloat16)
    for inputs in probe_batches(CONFIG):
        found = loaded({name: tf.constant(value) for name, value in inputs.items()})
        assert {value.dtype for value in tf.nest.flatten(found)} == {tf.float32}
        difference = np.abs(found["pooled_output"] - model(inputs)["pooled_output"]).max()
        assert 1e-5 < difference < 0.05


def test_the_activation_is_fused_in_bfloat16_too(bfloat16):
    if "mixed_bfloat16" not in fast_precisions(tf.distribute.OneDeviceStrategy("/cpu:0")):
        pytest.skip("TensorFlow fuses bfloat16 only on processors with units for it")
    loaded = tf.saved_model.load(bfloat16)
    serve = loaded.signatures["serving_default"]
    assert fused_activations(serve) == CONFIG.num_hidden_layers


def test_the_card_of_a_bfloat16_export_states_its_error(bfloat16):
    report = files.read_object(f"{bfloat16}/{REPORT_FILE}")
    largest = largest_difference(report)
    assert 1e-5 < largest < 0.05 < report["tolerance"]
    card = files.read_text(f"{bfloat16}/{CARD_FILE}")
    assert f"at most {largest:.1e}" in card and "computes in mixed_bfloat16" in card


def test_strings_may_differ_only_with_a_larger_tolerance(bfloat16, model):
    inputs = probe_batches(CONFIG)[0]
    probe = Probe(inputs, {"pooled_output": np.zeros([1, 1], np.int32)})
    with checked_in_this_process():
        with pytest.raises(AlbertError, match="other values in 'pooled_output'"):
            self_check(bfloat16, [probe], 0.25)  # Another shape.
        shape = model(inputs)["pooled_output"].shape
        probe = Probe(inputs, {"pooled_output": np.zeros(shape, np.int32)})
        with pytest.raises(AlbertError, match="other values in 'pooled_output'"):
            self_check(bfloat16, [probe])
        report = self_check(bfloat16, [probe], 0.25)
    assert report["probes"][0]["equal"] == {"pooled_output": 0.0}
