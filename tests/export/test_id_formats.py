# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite and ONNX models have the outputs of their sources."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.export.id_formats import ONNX, encoder_ids_export
from albert_tf.export.saved_model import INT8, publish
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.scripts import export_tfhub
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.embedding.data import EmbeddingSpec
from albert_tf.tasks.embedding.task import EmbeddingTask
from albert_tf.tasks.export import task_export, text_form
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.tasks.squad.data import SquadSpec
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.tagging.data import TaggingSpec
from albert_tf.tasks.tagging.task import TaggingTask
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import tiny_config
from tests.support.cases import slow
from tests.support.releases import TF1_TINY
from tests.support.small_tasks import write_run

NAMES = ("input_word_ids", "input_mask", "input_type_ids")
LABELS, PROBABILITIES = ("no", "yes", "maybe"), {"probabilities": (1, 3)}


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
def exact(encoder, wordpiece_tokenizer):
    return encoder_ids_export(encoder, wordpiece_tokenizer)


def runner(export):
    content = export.files["model.tflite"]
    return tf.lite.Interpreter(model_content=content).get_signature_runner("serving_default")


def inputs_of_all_sizes():
    generator = np.random.default_rng(0)
    for rows, length in ((1, 1), (5, 3), (2, 32)):
        ids = generator.integers(0, 60, [rows, length], np.int32)
        mask = (np.arange(length) < generator.integers(1, length + 1, [rows, 1])).astype(np.int32)
        yield dict(zip(NAMES, (ids, mask, ids % 2)))


def assert_outputs(found, encoder, inputs):
    expected = encoder({name: tf.constant(value) for name, value in inputs.items()})
    assert {*found} == {"pooled_output", "sequence_output"}
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5)


def test_one_lite_file_takes_every_batch_size_and_length(exact, encoder):
    run = runner(exact)
    for inputs in inputs_of_all_sizes():
        assert_outputs(run(**inputs), encoder, inputs)


@pytest.mark.smoke
def test_one_onnx_file_takes_every_batch_size_and_length(onnxruntime, encoder, wordpiece_tokenizer):
    content = encoder_ids_export(encoder, wordpiece_tokenizer, file_format=ONNX).files["model.onnx"]
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert {value.name for value in session.get_inputs()} == set(NAMES)
    assert [value.shape for value in session.get_inputs()] == [["batch", "length"]] * 3
    outputs = [value.name for value in session.get_outputs()]
    for inputs in inputs_of_all_sizes():
        assert_outputs(dict(zip(outputs, session.run(None, inputs))), encoder, inputs)


@pytest.mark.usefixtures("self_check_here")
def test_int8_makes_a_smaller_and_less_exact_model(exact, encoder, wordpiece_tokenizer, tmp_path):
    small = encoder_ids_export(encoder, wordpiece_tokenizer, precision=INT8)
    sizes, differences = [], []
    for name, export in (("exact", exact), ("int8", small)):
        differences.append(publish(export, str(tmp_path / name), {}))
        sizes.append((tmp_path / name / "model.tflite").stat().st_size)
    # The converter leaves small matrices as they are.
    matrices = [w for w in encoder.weights if len(w.shape) == 2 and w.shape.num_elements() >= 1024]
    saved = 3 * sum(w.shape.num_elements() for w in matrices)
    assert sizes[0] - sizes[1] >= saved > 0
    assert differences[0] < 1e-5 < differences[1] < 0.1


@pytest.mark.usefixtures("onnxruntime", "self_check_here")
def test_int8_for_onnx_has_weights_that_layers_share_once(wordpiece_tokenizer, tmp_path):
    import onnx

    model = AlbertEncoder(tiny_config(140, num_hidden_layers=3, hidden_size=32), dtype="float32")
    export = encoder_ids_export(model, wordpiece_tokenizer, ONNX, INT8)
    assert 1e-5 < publish(export, str(tmp_path / "int8"), {}) < 0.1
    kept = onnx.load(tmp_path / "int8" / "model.onnx").graph.initializer
    kinds = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    found = [np.prod(x.dims) for x in kept if x.data_type in kinds and len(x.dims) == 2]
    names = ("kernel", "word_embeddings", "token_type_embeddings")
    matrices = [w for k, w in model.named_weights().items() if k.endswith(names)]
    assert sum(found) == sum(w.shape.num_elements() for w in matrices)


@pytest.mark.slow
@pytest.mark.usefixtures("onnxruntime", "self_check_here")
def test_int8_for_onnx_rounds_small_columns_beside_large_ones(tmp_path):
    model = albert_tf.load_pretrained("albert_small_books")
    export = encoder_ids_export(model.encoder, model.tokenizer, ONNX, INT8)
    assert publish(export, str(tmp_path), {}) < 0.07  # 0.11 with the columns as they are.


@pytest.mark.usefixtures("onnxruntime")
def test_int8_for_onnx_moves_the_size_of_columns_into_the_weights(wordpiece_tokenizer):
    import onnx

    model = AlbertEncoder(tiny_config(140, hidden_size=32, intermediate_size=64), dtype="float32")
    weights, inner = model.named_weights(), "bert/encoder/transformer/group_0/inner_group_0"
    weights[f"{inner}/LayerNorm/gamma"].assign(np.r_[30, np.ones(31)])
    content = encoder_ids_export(model, wordpiece_tokenizer, ONNX, INT8).files["model.onnx"]
    kept = onnx.load_from_string(content).graph.initializer
    arrays = {x.name: onnx.numpy_helper.to_array(x) for x in kept}
    (name,) = (k for k, x in arrays.items() if k.endswith("/scale") and x.shape == (32,))
    assert arrays[name][0] < arrays[name][1:].min() / 5
    q, size = (arrays[name.replace("/scale", end)] for end in ("_quantized", "_scale"))
    kernel = weights[f"{inner}/ffn_1/intermediate/dense/kernel"]
    np.testing.assert_allclose(q * size * arrays[name][:, None], kernel, atol=3e-3)


@pytest.mark.usefixtures("self_check_here")
@pytest.mark.parametrize("activation", ["gelu_erf", "relu", *slow("tanh", "linear")])
def test_every_activation_is_built_in(activation, wordpiece_tokenizer, tmp_path):
    config = dataclasses.replace(tiny_config(140), hidden_act=activation)
    model = AlbertEncoder(config, dtype="float32")
    assert publish(encoder_ids_export(model, wordpiece_tokenizer), str(tmp_path), {}) < 1e-5


def test_without_the_packages_one_sentence_names_the_extra(
    encoder, wordpiece_tokenizer, monkeypatch
):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(AlbertError, match=r"`format`=onnx needs onnxruntime; install"):
        encoder_ids_export(encoder, wordpiece_tokenizer, file_format=ONNX)


@pytest.mark.parametrize("kind", [SquadTask, MultipleChoiceTask])
def test_beams_and_choices_are_not_exported_for_token_ids(kind, sentencepiece_tokenizer):
    spec = {"version": "2.0", "max_query_length": 4} if kind is SquadTask else {}
    spec = kind.spec_class(max_seq_length=14, **spec)
    task = kind(tiny_config(sentencepiece_tokenizer.vocab_size), sentencepiece_tokenizer, spec)
    with pytest.raises(AlbertError, match=f"the task '{kind.name}' cannot be exported for token"):
        task_export(task, task.build_model(), file_format=ONNX)


@pytest.mark.parametrize("name", ["tflite", "onnx"])
@pytest.mark.parametrize(
    ("kind", "spec", "shapes"),
    [
        (TextClassificationTask, ClassificationSpec(LABELS, 14), PROBABILITIES),
        (TextClassificationTask, ClassificationSpec((), 14), {"value": (1,)}),
        (TextClassificationTask, ClassificationSpec(LABELS, 14, multi_label=True), PROBABILITIES),
        (TaggingTask, TaggingSpec(("B-X", "I-X", "O"), 14), {"tags": (1, 14), "scores": (1, 14)}),
        (EmbeddingTask, EmbeddingSpec(14), {"embedding": (1, 16)}),
        (
            SquadTask,
            SquadSpec("2.0", plain_head=True, max_seq_length=14, max_query_length=4),
            {"start_logits": (1, 5), "end_logits": (1, 5)},
        ),
    ],
)
def test_each_kind_is_exported_with_vocabulary_and_labels(
    kind, spec, shapes, name, request, run_script, monkeypatch, sentencepiece_tokenizer, tmp_path
):
    if name == "onnx":
        request.getfixturevalue("onnxruntime")
    if shapes is not PROBABILITIES:
        request.getfixturevalue("self_check_here")
    tokenizer = sentencepiece_tokenizer
    keras.utils.set_random_seed(7)
    task = kind(tiny_config(tokenizer.vocab_size), tokenizer, spec)
    write_run(task, tmp_path / "run")
    path = tmp_path / "export"
    done = run_script(
        export_tfhub, f"--albert_directory={tmp_path}/run", f"--export_path={path}",
        f"--format={name}",
    ).ok()  # fmt: skip
    title = "ONNX" if name == "onnx" else "TensorFlow Lite"
    assert f"for {title} is in {path}; README.md there describes it." in done.stdout
    assert Tokenizer.from_file(str(path)).encode("Né 9,9") == tokenizer.encode("Né 9,9")
    assert json.loads((path / "tokenizer.json").read_text())["model"]["type"] == "Unigram"
    report = json.loads((path / "self_check.json").read_text())
    assert {*report["probes"][0]["differences"]} == {*shapes}
    labels = path / "labels.txt"
    labels = labels.read_text().split() if labels.exists() else []
    assert labels == [*text_form(task, None).labels]
    # The example of the model card, with ids that this small vocabulary has.
    code = (path / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code.replace("1854", "18"), names)
    assert {key: value.shape for key, value in names["outputs"].items()} == shapes
