# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The multiple-choice task: loss and metrics against their formulas, files, settings."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.tasks.fine_tuning_task import ExampleSet
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.weights.run_folder import RunFolder
from tests.support.builders import write_tokenizer

SPEC = MultipleChoiceSpec(max_seq_length=16, max_qa_length=6)


@pytest.fixture
def task(tmp_path):
    config = AlbertConfig.from_preset("albert_test")
    tokenizer = write_tokenizer(tmp_path, (f"word{i}" for i in range(config.vocab_size - 5)))
    return MultipleChoiceTask(config, tokenizer, SPEC, dropout_rate=0.0)


def questions(*labels, groups=None):
    rows = zip(labels, groups or [""] * len(labels))
    return [
        MultipleChoiceExample(str(i), "word1", "", ("word2", "word3", "word4"), label, group, "")
        for i, (label, group) in enumerate(rows)
    ]


def test_metrics_are_shares_of_right_answers_in_all_and_in_each_group(task):
    probabilities = np.array(
        [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]], np.float32
    )
    asked = questions(0, 2, 1, 2, groups=["middle", "high", "high", "high"])
    metrics = task.metrics({"probabilities": probabilities}, ExampleSet(asked, None, ""))
    assert metrics == pytest.approx(
        {
            "accuracy": 3 / 4,
            "middle_accuracy": 1.0,
            "high_accuracy": 2 / 3,
            "loss": -np.log([0.5, 0.7, 0.3, 0.6]).mean(),
            "chance_accuracy": 1 / 3,
            "chance_loss": np.log(3),
        }
    )


def test_training_loss_is_that_of_the_evaluation(task):
    """Cross-entropy of the softmax over options: sums and predictions of one batch agree."""
    keras.utils.set_random_seed(3)
    model = task.build_model()
    model.named_weights()["output_weights"].assign(tf.random.normal([1, 32]))
    ids = np.random.default_rng(0).integers(5, task.config.vocab_size, (4, 3, 10))
    ones = tf.ones([4, 3, 10], tf.int32)
    batch = {
        "input_word_ids": tf.constant(ids, tf.int32),
        "input_mask": ones,
        "input_type_ids": ones * 0,
        "label_ids": tf.constant([0, 1, 2, 1]),
    }
    means = task.means(task.sums(model, batch, training=True), task.weights(batch))
    outputs = {k: v.numpy() for k, v in task.predict(model, batch).items()}
    metrics = task.metrics(outputs, ExampleSet(questions(0, 1, 2, 1), None, ""))
    assert metrics["loss"] != pytest.approx(np.log(3), abs=1e-3)
    for name in ("loss", "accuracy"):
        assert float(means[name]) == pytest.approx(metrics[name], abs=1e-5)


def test_results_of_former_predictions_do_not_stay(task, tmp_path):
    outputs = {"probabilities": np.full((2, 3), 1 / 3)}
    for label, accuracy in ((1, 0.5), (None, None)):
        data = ExampleSet(questions(0, label), None, "")
        task.write_predictions(data, outputs, RunFolder(str(tmp_path)))
        results = json.loads((tmp_path / "predict_results.json").read_text())
        assert results.get("accuracy") == accuracy
