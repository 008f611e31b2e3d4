# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""ONNX models have the outputs of their source; needs the extra `onnx`."""

import importlib.util
import json
import sys

import numpy as np
import pytest

import export_tfhub
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export import onnx_graph
from albert_tf.export.id_formats import encoder_outputs
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import tiny_config
from tests.support.small_tasks import write_run

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")


@pytest.fixture
def runtime():
    """ONNX Runtime, where the converter can be installed."""
    if sys.version_info < (3, 10):
        pytest.skip("tf2onnx needs Python 3.10")
    import onnxruntime

    return onnxruntime


def config(**changes) -> AlbertConfig:
    return tiny_config(60, num_hidden_layers=2, initializer_range=0.3, **changes)


def test_without_the_packages_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AlbertError, match=r"`format`=onnx needs tf2onnx and onnxruntime; install"):
        onnx_graph.onnx_format()


def test_an_encoder_takes_any_batch_size_and_length(runtime):
    model = AlbertEncoder(config(), dtype="float32")
    function = encoder_outputs(model)
    content = onnx_graph.convert(function, model.named_weights())
    report = onnx_graph.numerics(content, function, model.config)
    assert report["bytes"] == len(content) < 1.5 * 4 * model.count_params() + 50_000
    assert report["opset"] == 17 and report["operations"]["MatMul"] > 10
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert {value.name for value in session.get_inputs()} == set(INPUTS)
    assert [value.shape for value in session.get_inputs()] == [["batch", "length"]] * 3
    shapes = {value.name: value.shape for value in session.get_outputs()}
    assert shapes == {"pooled_output": ["batch", 16], "sequence_output": ["batch", "length", 16]}
    for rows, length in ((1, 1), (5, 3), (2, 32)):
        ids = np.arange(rows * length, dtype=np.int32).reshape([rows, length]) % 60
        mask = np.ones_like(ids)
        mask[-1, length // 2 + 1 :] = 0
        inputs = dict(zip(INPUTS, (ids, mask, np.zeros_like(ids))))
        pooled, sequence = session.run(["pooled_output", "sequence_output"], inputs)
        expected = model(inputs)
        np.testing.assert_allclose(pooled, expected["pooled_output"], atol=1e-5)
        np.testing.assert_allclose(sequence, expected["sequence_output"], atol=1e-5)


def test_another_model_is_not_accepted(runtime):
    model, other = (AlbertEncoder(config(), dtype="float32") for _ in range(2))
    content = onnx_graph.convert(encoder_outputs(model), model.named_weights())
    with pytest.raises(AlbertError, match=r"^The ONNX model is not accurate: its pooled_output"):
        onnx_graph.numerics(content, encoder_outputs(other), model.config)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("no", "yes", "maybe"), ()])
def test_a_classifier_is_exported_with_vocabulary_and_labels(
    labels, runtime, sentencepiece_tokenizer, run_script, tmp_path, monkeypatch
):
    tokenizer = sentencepiece_tokenizer
    spec = ClassificationSpec(labels, 14)
    task = TextClassificationTask(tiny_config(tokenizer.vocab_size), tokenizer, spec)
    write_run(task, tmp_path / "run")
    path = tmp_path / "onnx"
    done = run_script(
        export_tfhub, f"--albert_directory={tmp_path}/run", f"--export_path={path}",
        "--export_type=classifier", "--format=onnx",
    ).ok()  # fmt: skip
    assert f"The ONNX model is in {path}; README.md there describes it." in done.stdout
    assert Tokenizer.from_file(str(path / "tokenizer.json")).vocab_size == tokenizer.vocab_size
    (name,) = json.loads((path / "self_check.json").read_text())["outputs"]
    assert name == ("probabilities" if labels else "value")
    assert (path / "labels.txt").exists() == bool(labels)
    # The example of the model card, with ids that this small vocabulary has.
    code = (path / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code.replace("1854", "18"), names)
    assert names["outputs"][name].shape == ((1, 3) if labels else (1,))
