# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.tasks.classification.labels import label_values
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask, TextSet
from albert_tf.tasks.tables import TextColumns, TextExample
from tests.tasks.conftest import CONFIG

COLUMNS = TextColumns("text", "pair", "label")


@pytest.fixture
def make_task(tokenizer):
    def make(*labels, max_seq_length=8, **settings):
        spec = ClassificationSpec(labels, max_seq_length, COLUMNS, **settings)
        return TextClassificationTask(CONFIG, tokenizer, spec)

    return make


def examples_with(*labels):
    return [TextExample(str(i), "a b", None, label, f"f:{i}") for i, label in enumerate(labels)]


def labelled(*labels, among=()):
    examples = examples_with(*labels)
    return TextSet(examples, None, "", labels=label_values(examples, among))


def random_batch(labels, length=8):
    ids = np.random.default_rng(0).integers(5, 8, (len(labels), length))
    return {
        "input_word_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.ones([len(labels), length], tf.int32),
        "input_type_ids": tf.zeros([len(labels), length], tf.int32),
        "label_ids": tf.constant(labels),
    }


def training_means(task, model, batch):
    means = task.means(task.sums(model, batch, training=False), task.weights(batch))
    return {name: float(value) for name, value in means.items()}


def predict(task, model, batch):
    return {name: value.numpy() for name, value in task.predict(model, batch).items()}


def test_loss_and_accuracy_are_the_same_in_training_and_evaluation(make_task):
    task = make_task("x", "y", "z")
    model = task.build_model()
    for weight in model.trainable_variables:  # Far from uniform predictions.
        weight.assign(weight * 5 + 0.1)
    batch = random_batch([0, 1, 2, 2, 1])
    means, outputs = training_means(task, model, batch), predict(task, model, batch)
    assert outputs["probabilities"].shape == (5, 3)
    metrics = task.metrics(outputs, labelled(*"xyzzy", among="xyz"))
    assert means["loss"] == pytest.approx(metrics["loss"], rel=1e-5)
    assert means["accuracy"] == pytest.approx(metrics["accuracy"])
    assert abs(means["loss"] - np.log(3)) > 1e-3
    assert task.best_metric in metrics


def test_regression_minimises_the_mean_squared_error_and_answers_in_the_labels_unit(make_task):
    task = make_task()
    model = task.build_model()
    labels = [0.5, -1.0, 4.0]
    raw = predict(task, model, random_batch(labels))["value"]
    for mean, deviation in ((0.0, 1.0), (500.0, 100.0)):
        task.spec = dataclasses.replace(task.spec, mean=mean, deviation=deviation)
        batch = random_batch(labels)
        means, outputs = training_means(task, model, batch), predict(task, model, batch)
        np.testing.assert_allclose(outputs["value"], raw * deviation + mean, rtol=1e-5)
        expected = np.mean((raw - labels) ** 2)
        assert means["loss"] == pytest.approx(expected, rel=1e-5)
        metrics = task.metrics(outputs, labelled(*(x * deviation + mean for x in labels)))
        assert {name: metrics[name] for name in means} == pytest.approx(means, rel=1e-4)
        assert task.best_metric in metrics


@pytest.mark.parametrize("weights", ["balanced", "y:3", "y:1.5,x:.5", {"y": 6, "x": 2}])
def test_class_weights_weight_the_loss_and_keep_its_scale(make_task, weights, tmp_path):
    task = make_task("x", "y", class_weights=weights)
    data = task.open_examples(examples_with("x", "x", "x", "y"), "train", training=True)
    batch, model = data.source.batch(range(4), 8), task.build_model()
    probabilities = predict(task, model, batch)["probabilities"]
    losses = -np.log(probabilities[range(4), [0, 0, 0, 1]])
    expected = np.mean(losses * [2 / 3, 2 / 3, 2 / 3, 2])
    assert training_means(task, model, batch)["loss"] == pytest.approx(expected, rel=1e-5)
    held_out = task.open_examples(examples_with("x", "y"), "eval")
    assert "loss_weights" not in held_out.source.batch([0], 8)
    task.save_files(str(tmp_path))
    assert TextClassificationTask.load(str(tmp_path)).spec == task.spec


def test_class_weights_are_of_labels_of_any_form():
    spec = ClassificationSpec(("a,b", "c:d"), 8, class_weights="c:d:3,a,b:2")
    assert spec.weights_by_label() == {"a,b": 2.0, "c:d": 3.0}
    spec = ClassificationSpec((0, 1), 8, positive_label=np.int64(1), class_weights={1: 2})
    assert (spec.positive_label, spec.weights_by_label()) == ("1", {"1": 2.0})


def test_precision_recall_and_f1_are_of_the_positive_label(make_task):
    outputs, truth = {"probabilities": np.eye(3)[[0, 0, 1, 2, 0]]}, labelled(*"xyyzx", among="xyz")
    metrics = make_task(*"xyz", positive_label="x", best_metric="f1").metrics(outputs, truth)
    found = [metrics[name] for name in ("precision", "recall", "f1")]
    assert found == pytest.approx([2 / 3, 1, 0.8])
    assert "f1" not in make_task(*"xyz").metrics(outputs, truth)


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        ("xyz", {"best_metric": "f1"}, "one of accuracy, macro_f1, loss; f1 needs two labels"),
        ("", {"best_metric": "accuracy"}, "use one of pearson, spearman, mse, loss;"),
        ("xy", {"positive_label": "z"}, "`positive_label`='z' must be one of the labels x, y"),
        ("xy", {"class_weights": "x:2,z:1"}, "`class_weights`='x:2,z:1' must be balanced or name:"),
        ("xy", {"class_weights": {"x": 0}}, "'x:0' must be .* with numbers above 0"),
        ("xy", {"class_weights": "x:1e999"}, "'x:1e999' must be .* with numbers above 0"),
        ("", {"class_weights": "balanced"}, "for the labels none"),
    ],
)
def test_settings_that_do_not_fit_the_labels_are_refused(make_task, labels, settings, message):
    with pytest.raises(AlbertError, match=message):
        make_task(*labels, **settings)


def test_the_smallest_loss_can_select_the_best_weights(make_task):
    task = make_task("x", "y", best_metric="loss")
    assert not task.best_metric_larger_is_better
    assert task.constant_answer_note({"loss": 0.0}) is None
    assert make_task("x", "y").best_metric_larger_is_better


def test_a_task_file_that_does_not_describe_a_classifier_is_refused(tmp_path):
    value = {"task": "text_classification", "labels": ["x"]}
    (tmp_path / "task.json").write_text(json.dumps(value))
    with pytest.raises(AlbertError, match=r"task\.json: the key .max_seq_length. is missing"):
        TextClassificationTask.load(str(tmp_path))
