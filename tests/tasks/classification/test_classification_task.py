# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextColumns, TextExample
from albert_tf.tasks.base import ExampleSet
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from tests.tasks.conftest import CONFIG

COLUMNS = TextColumns("text", "pair", "label")


@pytest.fixture
def make_task(tokenizer):
    def make(*labels, max_seq_length=8):
        spec = ClassificationSpec(labels, max_seq_length, COLUMNS)
        return TextClassificationTask(CONFIG, tokenizer, spec)

    return make


def examples_with(*labels):
    return [TextExample(str(i), "a b", None, label, f"f:{i}") for i, label in enumerate(labels)]


def labelled(*labels):
    return ExampleSet(examples_with(*labels), None, "")


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
    metrics = task.metrics(outputs, labelled("x", "y", "z", "z", "y"))
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
        assert means["mse"] == pytest.approx(expected * deviation**2, rel=1e-5)
        metrics = task.metrics(outputs, labelled(*(x * deviation + mean for x in labels)))
        assert {name: metrics[name] for name in means} == pytest.approx(means, rel=1e-4)
        assert task.best_metric in metrics
        assert task.progress(means).endswith(f" mse {means['mse']:.4g}")


def test_sums_and_weights_add_up_over_parts_of_a_batch(make_task):
    task = make_task("x", "y")
    model = task.build_model()
    batch = random_batch([0, 1, 1, 0])
    parts = [{k: v[rows] for k, v in batch.items()} for rows in (slice(0, 1), slice(1, 4))]
    first, second = ((task.sums(model, part, False), task.weights(part)) for part in parts)
    added = task.means(*({k: a[k] + b[k] for k in a} for a, b in zip(first, second)))
    added = {name: float(value) for name, value in added.items()}
    assert added == pytest.approx(training_means(task, model, batch), rel=1e-5)


def test_opening_data_does_not_change_the_task(make_task, tmp_path):
    task = make_task("x", "y")
    before = dict(vars(task))
    task.open_examples(examples_with("x", "y", "x", "x"), "train", training=True)
    assert vars(task) == before


def test_a_saved_task_is_loaded(make_task, tmp_path):
    task = make_task("x", "y", max_seq_length=9)
    task.save_files(str(tmp_path))
    loaded = TextClassificationTask.load(str(tmp_path))
    assert (loaded.description(), loaded.spec) == (task.description(), task.spec)


def test_a_task_file_that_does_not_describe_a_classifier_is_refused(tmp_path):
    value = {"task": "text_classification", "labels": ["x"]}
    (tmp_path / "task.json").write_text(json.dumps(value))
    with pytest.raises(AlbertError, match="does not describe text classification"):
        TextClassificationTask.load(str(tmp_path))
