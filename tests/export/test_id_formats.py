# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite and ONNX models have the outputs of their sources."""

import dataclasses
import importlib.util
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
import export_tfhub
from albert_tf.errors import AlbertError
from albert_tf.export.id_formats import (
    QUANTIZATIONS,
    check,
    encoder_outputs,
    interpreter_class,
    lite_format,
    onnx_format,
)
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import tiny_config
from tests.support.cases import slow
from tests.support.releases import TF1_TINY
from tests.support.small_tasks import write_run
from tests.support.weights import golden_outputs

NAMES = ("input_word_ids", "input_mask", "input_type_ids")


def convert_encoder(model, id_format):
    return id_format.convert(encoder_outputs(model), model.named_weights())


def check_encoder(model, content, id_format):
    return check(id_format, content, encoder_outputs(model), model.config)


@pytest.fixture
def onnxruntime():
    """ONNX Runtime, where the converter can be installed."""
    if sys.version_info < (3, 10):
        pytest.skip("tf2onnx needs Python 3.10")
    import onnxruntime

    return onnxruntime


@pytest.fixture(scope="module")
def encoder():
    """A checkpoint that the TF1 release's programs trained."""
    return albert_tf.load_pretrained(str(TF1_TINY)).encoder


@pytest.fixture(scope="module")
def contents(encoder):
    return {name: convert_encoder(encoder, lite_format(name)) for name in QUANTIZATIONS}


@pytest.fixture(scope="module")
def golden():
    """Inputs for the checkpoint, and the TF1 release's outputs."""
    inputs, expected = golden_outputs(TF1_TINY)
    return {name: value.numpy() for name, value in inputs.items()}, expected


def runner(content):
    return interpreter_class()(model_content=content).get_signature_runner("serving_default")


def test_float32_gives_the_outputs_of_the_tf1_release(contents, golden):
    inputs, expected = golden
    found = runner(contents["none"])(**inputs)
    assert set(found) == {"pooled_output", "sequence_output"}
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5)


def inputs_of_all_sizes():
    generator = np.random.default_rng(0)
    for rows, length in ((1, 1), (5, 3), (2, 32)):
        ids = generator.integers(0, 60, [rows, length], np.int32)
        mask = (np.arange(length) < generator.integers(1, length + 1, [rows, 1])).astype(np.int32)
        yield dict(zip(NAMES, (ids, mask, ids % 2)))


def assert_outputs(found, encoder, inputs):
    expected = encoder({name: tf.constant(value) for name, value in inputs.items()})
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5)


def test_one_lite_file_takes_every_batch_size_and_length(contents, encoder):
    run = runner(contents["none"])
    for inputs in inputs_of_all_sizes():
        assert_outputs(run(**inputs), encoder, inputs)


def test_one_onnx_file_takes_every_batch_size_and_length(onnxruntime, encoder):
    content = convert_encoder(encoder, onnx_format())
    assert check_encoder(encoder, content, onnx_format())["bytes"] == len(content)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert {value.name for value in session.get_inputs()} == set(NAMES)
    assert [value.shape for value in session.get_inputs()] == [["batch", "length"]] * 3
    outputs = [value.name for value in session.get_outputs()]
    for inputs in inputs_of_all_sizes():
        assert_outputs(dict(zip(outputs, session.run(None, inputs))), encoder, inputs)


@pytest.mark.parametrize("wrong", [{"length": 65}, {"word": 120}], ids=["too long", "no such id"])
def test_inputs_without_an_embedding_are_an_error(contents, wrong):
    ids = np.full([1, wrong.get("length", 8)], wrong.get("word", 5), np.int32)
    with pytest.raises(RuntimeError):
        runner(contents["none"])(**dict(zip(NAMES, (ids, np.ones_like(ids), np.zeros_like(ids)))))


def test_fewer_bits_make_a_smaller_and_less_exact_model(contents, encoder):
    reports = [check_encoder(encoder, contents[name], lite_format(name)) for name in QUANTIZATIONS]
    assert json.loads(json.dumps(reports)) == reports
    sizes = [report["bytes"] for report in reports]
    assert sizes == [len(content) for content in contents.values()]
    assert sizes[0] > sizes[1] > sizes[2]
    assert reports[0]["inputs"] == [[1, 16], [1, 64], [4, 16], [4, 64]]
    for output in ("pooled_output", "sequence_output"):
        exact, half, byte = (report["outputs"][output] for report in reports)
        assert exact["relative"] < 1e-5 and exact["relative"] < half["relative"] < byte["relative"]
        assert half["relative"] < 3e-3 and half["cosine"] > 0.99999
        assert byte["relative"] < 0.1 and byte["cosine"] > 0.99


@pytest.mark.parametrize("value", [0.01, np.nan])
def test_a_model_with_other_outputs_than_its_source_is_refused(contents, value):
    other = albert_tf.load_pretrained(str(TF1_TINY)).encoder
    bias = other.named_weights()["bert/pooler/dense/bias"]
    bias.assign_add(tf.fill(bias.shape, value))
    with pytest.raises(AlbertError, match=r"^The TensorFlow Lite model is not accurate: its po"):
        check_encoder(other, contents["none"], lite_format("none"))


def test_weights_too_large_for_float16_are_refused():
    model = albert_tf.load_pretrained(str(TF1_TINY)).encoder
    # The float32 model normalises embeddings, so their size does not matter.
    for name in ("word", "token_type", "position"):
        table = model.named_weights()[f"bert/embeddings/{name}_embeddings"]
        table.assign(table * 1e8)
    content = convert_encoder(model, lite_format("float16"))
    with pytest.raises(AlbertError, match=r"\(float16\) model is not accurate: its pooled_output"):
        check_encoder(model, content, lite_format("float16"))


@pytest.mark.parametrize("activation", ["gelu_erf", "relu", *slow("tanh", "linear")])
def test_every_activation_is_built_in(activation):
    config = dataclasses.replace(tiny_config(140), hidden_act=activation)
    model = AlbertEncoder(config, dtype="float32")
    report = check_encoder(model, convert_encoder(model, lite_format("none")), lite_format("none"))
    assert report["outputs"]["sequence_output"]["relative"] < 1e-5


def test_a_function_that_needs_more_operations_is_refused_in_one_sentence():
    def function(inputs, training):
        return {"lengths": tf.strings.length(tf.strings.as_string(inputs["input_word_ids"]))}

    with pytest.raises(
        AlbertError, match=r"built-in operations: it lacks AsString, StringLength\.$"
    ) as error:
        lite_format("none").convert(function, {})
    assert "\n" not in str(error.value)


def test_an_unknown_quantization_is_refused():
    with pytest.raises(AlbertError, match="use one of none, float16, int8"):
        lite_format("int4")


def test_without_the_packages_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AlbertError, match=r"`format`=onnx needs tf2onnx and onnxruntime; install"):
        onnx_format()


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("tflite", ("no", "yes", "maybe")),
        ("onnx", ("no", "yes", "maybe")),
        pytest.param("tflite", (), marks=pytest.mark.slow),
    ],
)
def test_a_classifier_is_exported_with_vocabulary_and_labels(
    name, labels, request, sentencepiece_tokenizer, run_script, tmp_path, monkeypatch
):
    if name == "onnx":
        request.getfixturevalue("onnxruntime")
    tokenizer = sentencepiece_tokenizer
    keras.utils.set_random_seed(7)
    task = TextClassificationTask(
        tiny_config(tokenizer.vocab_size), tokenizer, ClassificationSpec(labels, 14)
    )
    write_run(task, tmp_path / "run")
    path = tmp_path / "export"
    done = run_script(
        export_tfhub, f"--albert_directory={tmp_path}/run", f"--export_path={path}",
        "--export_type=classifier", f"--format={name}",
    ).ok()  # fmt: skip
    assert f"model is in {path}; README.md there describes it." in done.stdout
    assert Tokenizer.from_file(str(path / "tokenizer.json")).vocab_size == tokenizer.vocab_size
    report = json.loads((path / "self_check.json").read_text())
    (output,) = report["outputs"]
    assert output == ("probabilities" if labels else "value")
    assert (path / "labels.txt").exists() == bool(labels)
    # The example of the model card, with ids that this small vocabulary has.
    code = (path / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code.replace("1854", "18"), names)
    if name == "onnx":
        assert names["outputs"][output].shape == (1, 3)
