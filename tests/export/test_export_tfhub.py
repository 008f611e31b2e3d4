# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""export_tfhub.py: exports folders with models as SavedModels with the same outputs."""

import os
import shutil
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.scripts import export_tfhub
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.weights.checkpoint import write_tf2
from tests.support.builders import tiny_config
from tests.support.releases import TF1_TINY, write_release
from tests.support.self_checks import checked_in_this_process
from tests.support.small_tasks import write_run
from tests.support.weights import golden_outputs, weights_of


def config_for(tokenizer):
    sizes = {"embedding_size": 16, "hidden_size": 32, "intermediate_size": 64}
    return tiny_config(tokenizer.vocab_size, **sizes, initializer_range=0.2)


class Classifier(NamedTuple):
    """A task, its output directory, and the SavedModel exported from there."""

    task: TextClassificationTask
    run: str
    path: str


@pytest.fixture(
    scope="module", params=["sentencepiece", pytest.param("wordpiece", marks=pytest.mark.slow)]
)
def classifier(request, tmp_path_factory) -> Classifier:
    keras.utils.set_random_seed(7)
    folder = tmp_path_factory.mktemp("classifier")
    tokenizer = request.getfixturevalue(f"{request.param}_tokenizer")
    spec = ClassificationSpec(("no", "yes", "maybe"), 14)
    task = TextClassificationTask(config_for(tokenizer), tokenizer, spec)
    write_run(task, folder / "run")
    with checked_in_this_process():  # A test below loads it in a fresh one.
        albert_tf.export_model(str(folder / "run"), str(folder / "saved"))
    return Classifier(task, str(folder / "run"), str(folder / "saved"))


def test_a_classifier_is_called_by_position_and_by_name(classifier):
    classify = tf.saved_model.load(classifier.path)
    texts, seconds = tf.constant(["the people", "the river"]), tf.constant(["bread", ""])
    found = classify(texts, seconds)["probabilities"]
    for call in (classify, classify.signatures["pairs"]):
        again = call(sentences=texts, second_sentences=seconds)["probabilities"]
        np.testing.assert_array_equal(again, found)
    assert {*classify.signatures["serving_default"](sentences=texts)} == {"label", "probabilities"}
    labels = [label.decode() for label in classify.labels().numpy()]
    assert labels == list(classifier.task.spec.labels)


@pytest.mark.usefixtures("self_check_here")
def test_a_fine_tuned_model_is_exported_by_the_path_of_its_checkpoint(classifier, export, tmp_path):
    run = shutil.copytree(classifier.run, tmp_path / "run")
    (run / "eval_results.json").write_text('{"accuracy": 0.8125}')
    for name in ("best", "best/ckpt-1"):
        path = export(run / name, tmp_path / os.path.basename(name))
        # The scores are those of the best weights, whichever they are.
        assert ("0.8125" in (tmp_path / path / "README.md").read_text()) == (name == "best")
        texts = ["the people", "the river"]
        found, expected = (tf.saved_model.load(p)(texts) for p in (path, classifier.path))
        np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-6)


@pytest.mark.usefixtures("self_check_here")
def test_a_masked_lm_without_a_sentence_order_head_is_exported_as_an_encoder(
    wordpiece_tokenizer, tmp_path, capsys
):
    config = config_for(wordpiece_tokenizer)
    weights = weights_of(AlbertPretrainer(config))
    kept = {name: value for name, value in weights.items() if "seq_relationship" not in name}
    write_tf2(str(tmp_path / "model"), config, wordpiece_tokenizer, kept)
    albert_tf.export_model(str(tmp_path / "model"), str(tmp_path / "saved"))
    assert "has no sentence order head; its encoder is exported alone" in capsys.readouterr().out
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert not hasattr(loaded, "mlm")
    bare = {name: value for name, value in kept.items() if "pooler" not in name}
    write_tf2(str(tmp_path / "bare"), config, wordpiece_tokenizer, bare)
    with pytest.raises(AlbertError, match="masked LMs lack these weights; fine-tune the model"):
        albert_tf.export_model(str(tmp_path / "bare"), str(tmp_path / "none"))


@pytest.mark.parametrize("paths", [(None, "exports"), ("runs", None), (3, "exports")])
def test_a_value_that_is_not_a_path_is_refused(paths, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AlbertError, match="must be a string, not"):
        albert_tf.export_model(*paths)


@pytest.fixture(scope="module")
def exported_release(tmp_path_factory):
    """A release, and the SavedModel with its heads exported from it."""
    folder = tmp_path_factory.mktemp("release")
    release = str(write_release(folder / "release", "vocab_zh.txt"))
    with checked_in_this_process():
        albert_tf.export_model(release, str(folder / "saved"))
    return release, str(folder / "saved")


def test_an_exported_release_has_the_outputs_of_the_release(exported_release):
    _, path = exported_release
    inputs, expected = golden_outputs(TF1_TINY)
    outputs, loaded = hub.KerasLayer(path)(inputs), hub.load(path)
    positions = tf.constant(expected["masked_lm_positions"], tf.int32)
    heads = loaded.mlm({**inputs, "masked_lm_positions": positions})
    logits = heads["mlm_logits"]
    found = {
        "pooled_output": outputs["pooled_output"],
        "sequence_output": outputs["sequence_output"],
        "all_layers": outputs["encoder_outputs"],
        "mlm_log_probs": tf.reshape(tf.nn.log_softmax(logits), expected["mlm_log_probs"].shape),
        "sop_log_probs": tf.nn.log_softmax(heads["sop_logits"]),
    }
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def test_an_exported_encoder_is_loaded_again_weight_by_weight(exported_release):
    expected, found = map(albert_tf.load_pretrained, exported_release)
    assert found.config == expected.config
    assert found.tokenizer.encode("p7 p9") == expected.tokenizer.encode("p7 p9")
    np.testing.assert_equal(weights_of(found), weights_of(expected))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "vocab_zh.txt").unlink(), "There is no vocabulary"),
        (lambda folder: (folder / "vocab_zh.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]"),
         "has 5 pieces, but the model vocab_size=120"),
        (lambda folder: (folder / "albert_config.json").unlink(), "albert_config"),
        (shutil.rmtree, "release, which does not exist; give"),
        (lambda folder: (folder / "model.ckpt-best.data-00000-of-00001").write_bytes(b"x"),
         "is damaged: Read less bytes"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_and_nothing_is_written(
    release, run_script, tmp_path, damage, message
):
    damage(release)
    done = run_script(
        export_tfhub, f"--albert_directory={release}", f"--export_path={tmp_path}/saved"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"release"}
