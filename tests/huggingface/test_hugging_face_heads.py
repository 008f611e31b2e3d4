# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of tasks that transformers saved (tests/golden/hf_heads/make.py), and ours for it."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, softmax

from albert_tf import (
    MultipleChoice,
    QuestionAnswerer,
    TextClassifier,
    TextEmbedder,
    TextRegressor,
    TextTagger,
    export_model,
)
from albert_tf.errors import AlbertError
from albert_tf.tasks.classification.spec import ClassificationSpec
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.embedding.data import EmbeddingSpec
from albert_tf.tasks.embedding.task import EmbeddingTask
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.tables import TextColumns
from albert_tf.tasks.tagging.data import TaggingSpec
from albert_tf.tasks.tagging.task import TaggingTask
from albert_tf.tokenization.sequences import join_segments, pad_sequences
from albert_tf.weights.conversion import convert
from albert_tf.weights.run_folder import RunFolder
from albert_tf.weights.thresholds import save_thresholds
from tests.support.cases import slow
from tests.support.weights import GOLDEN, weights_of

HEADS = GOLDEN / "hf_heads"
TEXTS = ["the unaffable resume", "50 running, wanted", "Wanted: the running résumé", "unwanted"]
COLUMNS = {"text": "text", "text_pair": "pair", "label": "label"}


def expected(name):
    with np.load(HEADS / name / "expected.npz") as arrays:
        return dict(arrays)


def outputs_of(loaded, *shape):
    """Returns a model's outputs for pairs of the texts, as make.py has them."""
    tokenizer = loaded.task.tokenizer
    ids = tokenizer.encode_batch(TEXTS)
    rows = [join_segments(tokenizer, a, b) for a, b in zip(ids, ids[::-1])]
    batch = pad_sequences(tokenizer, rows)
    first = np.array([[len(a) + 2] for a in ids])
    is_second = np.arange(batch["input_mask"].shape[1]) >= first
    batch["input_type_ids"] = batch["input_mask"] * is_second
    return loaded.model({name: x.reshape(*shape, -1) for name, x in batch.items()})


def test_texts_have_the_outputs_of_transformers():
    classifier = TextClassifier.load(str(HEADS / "classification"), columns=COLUMNS)
    assert classifier.labels == ("so-so", "bad", "good")
    assert classifier.task.spec.max_seq_length == 80  # Its positions.
    found = classifier.probabilities(TEXTS, TEXTS[::-1])
    wanted = softmax(expected("classification")["logits"], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    several = TextClassifier.load(str(HEADS / "multi_label"), columns=COLUMNS)
    found, wanted = (
        several.probabilities(TEXTS, TEXTS[::-1]),
        expit(expected("multi_label")["logits"]),
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    regressor = TextRegressor.load(str(HEADS / "regression"), columns=COLUMNS)
    found, (wanted,) = regressor.predict(TEXTS, TEXTS[::-1]), expected("regression")["logits"].T
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_options_answers_and_tags_have_the_outputs_of_transformers():
    found = outputs_of(MultipleChoice.load(str(HEADS / "choice")), 2, 2)["logits"]
    np.testing.assert_allclose(found, expected("choice")["logits"], rtol=0, atol=1e-5)
    answerer = QuestionAnswerer.load(str(HEADS / "answering"))
    assert answerer.task.spec.version == "1.1" and answerer.answer("the", "unwanted").answerable
    tagger = TextTagger.load(str(HEADS / "tagging"))
    assert tagger.task.spec.tags == ("O", "B-A", "I-A") and tagger.predict(TEXTS[:1])
    found = outputs_of(tagger, len(TEXTS))["logits"]
    np.testing.assert_allclose(found, expected("tagging")["logits"], rtol=0, atol=1e-5)
    found = outputs_of(answerer, len(TEXTS))
    for name, wanted in expected("answering").items():
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=1e-5)


def test_a_head_is_trained_further_and_its_labels_are_matched_by_name(tmp_path):
    rows = [{"text": x, "label": ["bad", "good", "so-so"][i % 3]} for i, x in enumerate(TEXTS)]
    folder, settings = str(HEADS / "classification"), {"train_step": 1, "learning_rate": 1e-9}
    trained = TextClassifier.train(folder, rows, output_dir=str(tmp_path), **settings)
    assert trained.labels == ("bad", "good", "so-so")
    before = TextClassifier.load(folder)
    order = [before.labels.index(label) for label in trained.labels]
    wanted = before.probabilities(TEXTS)[:, order]
    np.testing.assert_allclose(trained.probabilities(TEXTS), wanted, rtol=0, atol=1e-5)
    renamed = TextClassifier.load(folder, labels=["bad", "good", "so-so"])
    assert before.evaluate(rows)["loss"] != renamed.evaluate(rows)["loss"]


@pytest.mark.parametrize(
    "name", ["classification", "answering", *slow("multi_label", "regression", "choice", "tagging")]
)
def test_it_is_exported_with_text(name, tmp_path):
    export_model(str(HEADS / name), str(tmp_path / "export"))  # Checks its answers.
    assert (tmp_path / "export" / "saved_model.pb").exists()


def test_what_cannot_be_loaded_is_one_sentence(tmp_path):
    for model, name, message in (
        (TextClassifier, "regression", "predicts numbers; open it with TextRegressor"),
        (TextRegressor, "choice", "config.json describes a model for the task 'multiple_choice'"),
    ):
        with pytest.raises(AlbertError, match=message):
            model.load(str(HEADS / name))
    folder = shutil.copytree(HEADS / "classification", tmp_path / "hf")
    values = json.loads((folder / "config.json").read_text())
    for labels in ({"0": "a", "1": "a"}, {"0": "a", "2": "b"}):
        (folder / "config.json").write_text(json.dumps({**values, "id2label": labels}))
        with pytest.raises(AlbertError, match="id2label must have a different name for each"):
            TextClassifier.load(str(folder))


@pytest.mark.parametrize("several", [False, True])
def test_a_classifier_goes_there_and_back(several, run, tmp_path):
    columns = TextColumns("a", "b", "label")
    spec = ClassificationSpec((3, 1), 60, columns=columns, multi_label=several)
    ours, theirs = run(TextClassificationTask, spec)
    thresholds = {"1": 0.25, "3": 0.75} if several else None
    if several:
        save_thresholds(RunFolder(ours), thresholds)
    convert(ours, "hf", theirs)
    config, options = (
        json.loads((tmp_path / "hf" / file).read_text())
        for file in ("config.json", "tokenizer_config.json")
    )
    assert config["architectures"] == ["AlbertForSequenceClassification"]
    assert config["id2label"] == {"0": "3", "1": "1"} and config["label2id"] == {"3": 0, "1": 1}
    kind = "multi" if several else "single"
    assert config["problem_type"] == f"{kind}_label_classification"
    assert options["model_max_length"] == 60
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "| accuracy | 0.75 |" in card and ("| threshold of 1 | 0.25 |" in card) == several
    before, after = TextClassifier.load(ours), TextClassifier.load(theirs)
    assert after.takes_pairs and after.labels == ("3", "1")
    assert after.task.spec.multi_label == several
    assert after.task.thresholds == before.task.thresholds == thresholds
    np.testing.assert_equal(weights_of(after.model), weights_of(before.model))
    assert config["albert_tf"].get("thresholds") == thresholds
    convert(theirs, "hf", str(tmp_path / "again"))
    for name in ("tokenizer_config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "hf" / name).read_bytes()


@pytest.mark.filterwarnings("error:.* was loaded in part")
@pytest.mark.parametrize(
    ("model", "task_class", "spec", "answer"),
    [
        (TextTagger, TaggingTask, TaggingSpec(("B-A", "I-A", "O"), 32), "predict"),
        (MultipleChoice, MultipleChoiceTask, MultipleChoiceSpec(32, 16), "choose"),
        (TextEmbedder, EmbeddingTask, EmbeddingSpec(30), "embed"),
        (TextEmbedder, EmbeddingTask, EmbeddingSpec(20, "cls", normalize=False), "embed"),
    ],
)
def test_other_tasks_go_there_and_back(model, task_class, spec, answer, run):
    ours, theirs = run(task_class, spec)
    report = convert(ours, "hf", theirs)
    before, after = model.load(ours), model.load(theirs)
    assert after.task.spec == before.task.spec
    weights = (weights_of(loaded.model) for loaded in (before, after))
    np.testing.assert_equal(*({name: own[name] for name in report.matched} for own in weights))
    found, wanted = (getattr(loaded, answer)(TEXTS) for loaded in (after, before))
    np.testing.assert_equal(found, wanted)


def test_a_regressor_answers_in_its_own_unit_there(run):
    spec = ClassificationSpec((), 60, mean=50.0, deviation=20.0)
    ours, theirs = run(TextClassificationTask, spec)
    convert(ours, "hf", theirs)
    before, after = TextRegressor.load(ours), TextRegressor.load(theirs)
    assert after.task.spec.deviation == 1
    np.testing.assert_allclose(after.predict(TEXTS), before.predict(TEXTS), rtol=1e-6)


@pytest.mark.parametrize(("version", "plain"), [("1.1", False), ("2.0", False), ("2.0", True)])
def test_only_a_head_that_hugging_face_has_is_written(version, plain, run, tmp_path):
    spec = SquadSpec(version, plain_head=plain, max_seq_length=60, max_query_length=20)
    ours, theirs = run(SquadTask, spec)
    if plain:
        save_thresholds(RunFolder(ours), {"null_threshold": -1.5})
    elif version == "2.0":
        with pytest.raises(AlbertError, match=r"no head like that of squad 2\.0: convert the enc"):
            convert(ours, "hf", theirs)
        convert(ours, "hf", theirs, allow_partial=True)
        assert "AlbertModel" in (tmp_path / "hf" / "config.json").read_text()
        return
    report = convert(ours, "hf", theirs)
    assert "cls/squad/output_bias" in report.matched and not report.missing
    before, after = QuestionAnswerer.load(ours), QuestionAnswerer.load(theirs)
    assert after.task.spec == before.task.spec
    assert after.threshold == before.threshold == (-1.5 if plain else None)
    assert after.answer("the", TEXTS) == before.answer("the", TEXTS)


def test_a_model_is_uploaded_with_its_card(run, server, monkeypatch):
    folder, target = run(TextClassificationTask, ClassificationSpec(("no", "yes"), 24))
    api = importlib.import_module("huggingface_hub.hf_api").api
    monkeypatch.setattr(api, "endpoint", server.url)
    classifier = TextClassifier.load(folder, max_seq_length=20)
    assert classifier.push_to_hub("ab/cd") == f"{server.url}/ab/cd/commit/1"
    convert(folder, "hf", target)
    uploaded = server.models["ab/cd"]
    assert {*uploaded} == {path.name for path in Path(target).iterdir() if path.name[0] != "."}
    assert uploaded["model.safetensors"] == Path(target, "model.safetensors").read_bytes()
    assert json.loads(uploaded["config.json"])["albert_tf"]["max_seq_length"] == 20
    assert b"| accuracy | 0.75 |" in uploaded["README.md"]
    with pytest.raises(AlbertError, match=r"a/b/c cannot be uploaded .* logged in"):
        classifier.push_to_hub("a/b/c")
