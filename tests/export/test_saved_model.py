# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""An export appears only if its outputs are those of its model; its graphs are fused."""

import itertools
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.export.hub import encoder_export, probe_batches
from albert_tf.export.saved_model import CARD_FILE, Export, publish, write_saved_model
from albert_tf.export.self_check import REPORT_FILE, Probe, self_check
from albert_tf.io import files
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.training.devices import fast_precisions
from tests.support.builders import tiny_config
from tests.support.self_checks import checked_in_this_process

CONFIG = tiny_config(100, hidden_size=32, num_hidden_layers=2, intermediate_size=64)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    model = AlbertPretrainer(CONFIG, dtype="float32")
    for variable in model.named_weights().values():
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    return model


def write_export(export, path):
    publish(export, str(path), {})
    return path


@pytest.fixture(scope="module")
def export(model, wordpiece_tokenizer):
    return encoder_export(model, wordpiece_tokenizer)


@pytest.fixture(scope="module")
def saved(export, tmp_path_factory):
    """The folder of an export, checked in a fresh process."""
    return write_export(export, tmp_path_factory.mktemp("published") / "saved")


def test_two_batch_sizes_and_two_lengths_are_compared_and_reported(export, saved):
    report = files.read_object(str(saved / REPORT_FILE))
    called = {
        (reported["called"], *probe.inputs["input_mask"].shape)
        for reported, probe in zip(report["probes"], export.probes)
    }
    assert called == set(itertools.product(("the model", "mlm"), (1, 4), (8, 32)))
    differences = [value for p in report["probes"] for value in p["differences"].values()]
    assert 0 <= max(differences) == report["largest_difference"] < 1e-5
    # All outputs, including each layer's.
    assert set(report["probes"][0]["differences"]) == {
        "default", "pooled_output", "sequence_output", "encoder_outputs",
    }  # fmt: skip
    # No path of this machine is in anything that was written.
    for path in saved.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for text in (str(saved.parent), str(pathlib.Path(__file__).parents[2]), "/tmp/"):
                assert text.encode() not in content, path


@pytest.mark.usefixtures("self_check_here")
@pytest.mark.parametrize("change", [0.05, np.nan])
def test_other_outputs_than_the_models_are_refused_and_nothing_is_left(export, change, tmp_path):
    # Changed after the model's outputs were computed.
    variable = export.root.trainable_variables[3]
    value = variable.numpy()
    variable.assign_add(tf.fill(variable.shape, change))
    try:
        with pytest.raises(AlbertError, match="the model has a difference of "):
            write_export(export, tmp_path / "saved")
    finally:
        variable.assign(value)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("self_check_here")
def test_strings_and_integers_must_be_equal_unless_the_tolerance_is_larger(tmp_path):
    root = tf.Module()
    root.__call__ = tf.function(
        lambda sentences: {"label": sentences, "index": tf.strings.length(sentences)},
        input_signature=[tf.TensorSpec([None], tf.string, "sentences")],
    )
    folder = str(tmp_path / "saved")
    write_saved_model(Export("", "", root, {}, []), folder)
    right = {"label": np.array([b"one", b"three"]), "index": np.array([3, 5], np.int32)}
    probe = Probe({"sentences": np.array([b"one", b"three"])}, right)
    report = self_check(folder, [probe])
    assert report["probes"][0]["differences"] == {"label": 0.0, "index": 0.0}
    labels = np.ma.array([b"one", b"tree"], mask=[False, True])
    odd = probe._replace(expected={**right, "label": labels})
    assert self_check(folder, [odd])["probes"] == report["probes"]
    odd.expected["label"].mask = False
    with pytest.raises(AlbertError, match="other values in 'label'"):
        self_check(folder, [odd])
    report = self_check(folder, [odd], 0.25)
    assert report["probes"][0]["differences"] == {"label": 0.5, "index": 0.0}
    assert report["largest_difference"] == 0
    odd = probe._replace(expected={"label": np.array([b"one"])})  # Another shape.
    with pytest.raises(AlbertError, match="other values in 'label'"):
        self_check(folder, [odd], 0.25)


def test_a_damaged_saved_model_is_refused(export, saved, tmp_path):
    path = shutil.copytree(saved, tmp_path / "saved")
    data = next(iter((path / "variables").glob("*.data-*")))
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(AlbertError, match=r"cannot be used in a fresh process \(.+\)"):
        self_check(str(path), export.probes)


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


def fused_activations(serve):
    """Counts the products of an encoder that compute the activation too."""
    inputs = {name: tf.constant(value) for name, value in probe_batches(CONFIG)[0].items()}
    fused = [names for op, names in optimized_operations(serve, inputs) if op == "_FusedMatMul"]
    return fused.count(["BiasAdd", "GeluApproximate"])


def test_served_graphs_have_the_model_s_outputs_in_forms_that_are_fused(model, wordpiece_tokenizer):
    serve = encoder_export(model.encoder, wordpiece_tokenizer).signatures["serving_default"]
    # TensorFlow optimizes a graph at its first call.
    assert fused_activations(serve) == CONFIG.num_hidden_layers
    for inputs in probe_batches(CONFIG):
        found = serve(**{name: tf.constant(value) for name, value in inputs.items()})
        expected = model.encoder(inputs)
        for name in ("pooled_output", "sequence_output"):
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=2e-6)
    # No weights are joined in a call.
    functions = serve.graph.as_graph_def().library.function
    operations = [node.op for function in functions for node in function.node_def]
    assert "MatMul" in operations and "ConcatV2" not in operations


def test_bfloat16_returns_float32_near_the_model_and_states_its_error(
    model, wordpiece_tokenizer, tmp_path
):
    rounded = AlbertEncoder(CONFIG, "mixed_bfloat16")
    for name, weight in rounded.named_weights().items():
        weight.assign(model.encoder.named_weights()[name])
    export = encoder_export(rounded, wordpiece_tokenizer, model.encoder, "mixed_bfloat16")
    with checked_in_this_process():
        path = write_export(export, tmp_path / "saved")
    loaded = tf.saved_model.load(str(path))
    for inputs in probe_batches(CONFIG):
        found = loaded({name: tf.constant(value) for name, value in inputs.items()})
        assert {value.dtype for value in tf.nest.flatten(found)} == {tf.float32}
        difference = np.abs(found["pooled_output"] - model.encoder(inputs)["pooled_output"]).max()
        assert 1e-5 < difference < 0.05
    report = files.read_object(str(path / REPORT_FILE))
    largest = report["largest_difference"]
    assert 1e-5 < largest < 0.05 < report["tolerance"]
    card = (path / CARD_FILE).read_text()
    assert f"at most {largest:.1e}" in card and "computes in mixed_bfloat16" in card
    assert "## To be filled in" in card
    # TensorFlow fuses bfloat16 only on processors with units for it.
    if "mixed_bfloat16" in fast_precisions(tf.distribute.OneDeviceStrategy("/cpu:0")):
        serve = loaded.signatures["serving_default"]
        assert fused_activations(serve) == CONFIG.num_hidden_layers
