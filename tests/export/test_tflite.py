# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite models have the outputs of their sources, and only built-in operations."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.export import tflite
from albert_tf.export.id_formats import encoder_outputs
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.tasks.classification.export import classifier_outputs
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from tests.support.builders import tiny_config
from tests.support.cases import slow
from tests.support.releases import TF1_TINY
from tests.support.weights import golden_outputs

CONFIG = tiny_config(
    140, embedding_size=16, hidden_size=32, num_hidden_layers=2, intermediate_size=64
)


def convert_encoder(model, quantization="none"):
    return tflite.convert(encoder_outputs(model), model.named_weights(), quantization)


def convert_classifier(task, model, quantization="none"):
    function = classifier_outputs(task, model)
    return tflite.convert(function, model.named_weights(), quantization)


def trained_encoder():
    return albert_tf.load_pretrained(str(TF1_TINY)).encoder


@pytest.fixture(scope="module")
def encoder():
    """A checkpoint that the TF1 release's programs trained."""
    return trained_encoder()


@pytest.fixture(scope="module")
def contents(encoder):
    return {name: convert_encoder(encoder, name) for name in tflite.QUANTIZATIONS}


@pytest.fixture(scope="module")
def reports(encoder, contents):
    function = encoder_outputs(encoder)
    return {
        name: tflite.numerics(content, function, encoder.config, name)
        for name, content in contents.items()
    }


@pytest.fixture(scope="module")
def golden():
    """Inputs for the checkpoint, and the TF1 release's outputs."""
    inputs, expected = golden_outputs(TF1_TINY)
    return {name: value.numpy() for name, value in inputs.items()}, expected


def runner(content):
    return tflite.interpreter_class()(model_content=content).get_signature_runner("serving_default")


def test_float32_gives_the_outputs_of_the_tf1_release(contents, golden):
    inputs, expected = golden
    found = runner(contents["none"])(**inputs)
    assert set(found) == {"pooled_output", "sequence_output"}
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5)


def test_the_interpreter_does_not_warn_of_its_removal(contents):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tflite.interpreter_class()(model_content=contents["none"])


def test_one_file_takes_every_batch_size_and_length(contents, encoder):
    run = runner(contents["none"])
    generator = np.random.default_rng(3)
    for rows, length in [(1, 1), (5, 9), (2, 64), (3, 4)]:
        ids = generator.integers(0, 120, [rows, length], np.int32)
        mask = (np.arange(length) < generator.integers(1, length + 1, [rows, 1])).astype(np.int32)
        inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": ids % 2}
        expected = encoder({name: tf.constant(value) for name, value in inputs.items()})
        found = run(**inputs)
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5)


def test_inputs_can_be_resized_without_the_signature(contents, golden):
    inputs, expected = golden
    interpreter = tflite.interpreter_class()(model_content=contents["none"])
    indices = {
        detail["name"].removeprefix("serving_default_").split(":")[0]: detail["index"]
        for detail in interpreter.get_input_details()
    }
    for name, index in indices.items():
        interpreter.resize_tensor_input(index, inputs[name].shape)
    interpreter.allocate_tensors()
    for name, index in indices.items():
        interpreter.set_tensor(index, inputs[name])
    interpreter.invoke()
    found = {
        len(detail["shape_signature"]): interpreter.get_tensor(detail["index"])
        for detail in interpreter.get_output_details()
    }
    np.testing.assert_allclose(found[2], expected["pooled_output"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[3], expected["sequence_output"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"length": 65}, {"word": 120}], ids=["too long", "no such id"])
def test_inputs_without_an_embedding_are_an_error(contents, wrong):
    ids = np.full([1, wrong.get("length", 8)], wrong.get("word", 5), np.int32)
    with pytest.raises(RuntimeError):
        runner(contents["none"])(
            input_word_ids=ids, input_mask=np.ones_like(ids), input_type_ids=np.zeros_like(ids)
        )


def test_the_report_has_sizes_operations_and_differences(reports, contents):
    for name, report in reports.items():
        assert json.loads(json.dumps(report)) == report
        assert report["quantization"] == name
        assert report["bytes"] == len(contents[name])
        assert report["inputs"] == [[1, 16], [1, 64], [4, 16], [4, 64]]
        # Four products in each layer, the pooler's and the embeddings' projections.
        assert report["operations"]["FULLY_CONNECTED"] == 3 * 4 + 1 + 1
        assert report["operations"]["SOFTMAX"] == 3
    assert reports["none"]["outputs"]["sequence_output"]["relative"] < 1e-5


def test_fewer_bits_make_a_smaller_and_less_exact_model(reports):
    sizes = [reports[name]["bytes"] for name in ("none", "float16", "int8")]
    assert sizes[0] > sizes[1] > sizes[2]
    for output in ("pooled_output", "sequence_output"):
        exact, half, byte = (
            reports[name]["outputs"][output] for name in ("none", "float16", "int8")
        )
        assert exact["relative"] < half["relative"] < byte["relative"]
        assert half["relative"] < 3e-3 and half["cosine"] > 0.99999
        assert byte["relative"] < 0.1 and byte["cosine"] > 0.99


def test_the_same_weights_make_the_same_bytes(contents):
    assert convert_encoder(trained_encoder(), "int8") == contents["int8"]


def test_a_model_with_other_outputs_than_its_source_is_refused(contents, encoder):
    other = trained_encoder()
    bias = other.named_weights()["bert/pooler/dense/bias"]
    bias.assign_add(tf.fill(bias.shape, 0.01))
    with pytest.raises(AlbertError, match="pooled_output differs"):
        tflite.numerics(contents["none"], encoder_outputs(other), encoder.config, "none")


def test_weights_too_large_for_float16_are_refused():
    model = trained_encoder()
    # The float32 model normalises embeddings, so their size does not matter.
    for name in ("word", "token_type", "position"):
        table = model.named_weights()[f"bert/embeddings/{name}_embeddings"]
        table.assign(table * 1e8)
    function = encoder_outputs(model)
    content = convert_encoder(model, "float16")
    with pytest.raises(AlbertError, match="'float16' is not accurate: its pooled_output differs"):
        tflite.numerics(content, function, model.config, "float16")


@pytest.mark.parametrize("activation", ["gelu_erf", "relu", *slow("tanh", "linear")])
def test_every_activation_is_built_in(activation, capfd):
    keras.utils.set_random_seed(2)
    config = dataclasses.replace(CONFIG, hidden_act=activation, num_hidden_layers=1)
    model = AlbertEncoder(config, dtype="float32")
    capfd.readouterr()
    content = convert_encoder(model)
    report = tflite.numerics(content, encoder_outputs(model), config, "none")
    assert report["outputs"]["sequence_output"]["relative"] < 1e-5
    assert capfd.readouterr() == ("", "")


def test_a_function_that_needs_more_operations_is_refused_in_one_sentence(capfd):
    def function(inputs, training):
        return {"lengths": tf.strings.length(tf.strings.as_string(inputs["input_word_ids"]))}

    capfd.readouterr()
    with pytest.raises(
        AlbertError, match=r"built-in operations: it lacks AsString, StringLength\.$"
    ) as error:
        tflite.convert(function, {}, "none")
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_other_operations_in_a_file_are_refused():
    function = tf.function(tf.linalg.det).get_concrete_function(tf.TensorSpec([2, 2], tf.float32))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.SELECT_TF_OPS]
    with pytest.raises(AlbertError, match="FlexMatrixDeterminant, which is not a built-in"):
        tflite.operations(converter.convert())


def test_an_unknown_quantization_is_refused(encoder):
    with pytest.raises(AlbertError, match="use one of none, float16, int8"):
        convert_encoder(encoder, "int4")


def examples(count, seed):
    """Texts of 6 to 16 tokens, and whether more of them are below 70 than not."""
    generator = np.random.default_rng(seed)
    mask = (np.arange(16) < generator.integers(6, 17, [count, 1])).astype(np.int32)
    ids = (generator.integers(5, 140, mask.shape) * mask).astype(np.int32)
    labels = ((ids < 70) & (mask == 1)).sum(axis=1) * 2 > mask.sum(axis=1)
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": np.zeros_like(ids)}
    return inputs, labels.astype(np.int32)


@pytest.fixture(scope="module")
def classifier():
    """One that has learnt to answer `examples`."""
    keras.utils.set_random_seed(4)
    model = AlbertClassifier(CONFIG, 2, dropout_rate=0.0, dtype="float32")
    optimizer = keras.optimizers.Adam(3e-3)
    weights = list(model.named_weights().values())

    @tf.function(autograph=False)
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)["logits"]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        optimizer.apply_gradients(zip(tape.gradient(losses, weights), weights))

    for seed in range(150):
        inputs, labels = examples(64, seed)
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        step(tensors, tf.constant(labels))
    return model


@pytest.mark.parametrize("quantization", ["none", *slow("float16"), "int8"])
def test_a_classifier_keeps_its_answers(quantization, classifier, sentencepiece_tokenizer):
    spec = ClassificationSpec(("few", "many"), 16)
    task = TextClassificationTask(CONFIG, sentencepiece_tokenizer, spec)
    content = convert_classifier(task, classifier, quantization)
    function = classifier_outputs(task, classifier)
    report = tflite.numerics(content, function, CONFIG, quantization)
    assert report["outputs"]["probabilities"]["same_label"] == 1.0

    inputs, labels = examples(1000, seed=999)
    found = runner(content)(**inputs)["probabilities"]
    expected = function({k: tf.constant(v) for k, v in inputs.items()}, False)["probabilities"]
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    accuracy = {
        name: (np.argmax(values, axis=1) == labels).mean()
        for name, values in (("source", expected), ("lite", found))
    }
    assert accuracy["source"] > 0.85
    assert accuracy["lite"] > accuracy["source"] - 0.01
    same = (found.argmax(axis=1) == np.argmax(expected, axis=1)).mean()
    assert same >= {"none": 1.0, "float16": 0.998, "int8": 0.98}[quantization]


def test_a_regression_gives_its_value(sentencepiece_tokenizer):
    keras.utils.set_random_seed(5)
    model = AlbertClassifier(CONFIG, 1, dtype="float32")
    task = TextClassificationTask(CONFIG, sentencepiece_tokenizer, ClassificationSpec((), 16))
    content = convert_classifier(task, model)
    report = tflite.numerics(content, classifier_outputs(task, model), CONFIG, "none")
    assert set(report["outputs"]) == {"value"}
    assert runner(content)(**examples(3, 0)[0])["value"].shape == (3,)
