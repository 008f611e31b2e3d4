# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The multiple-choice task: loss and metrics against their formulas, files, settings."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.tasks.fine_tune_config import load_recipe
from albert_tf.tasks.multiple_choice.data import read_race
from albert_tf.tasks.multiple_choice.task import (
    GROUPS,
    MultipleChoiceSpec,
    MultipleChoiceTask,
    _write_outputs,
    multiple_choice_metrics,
)
from tests.support.builders import write_tokenizer

MIDDLE, HIGH = GROUPS.index("middle"), GROUPS.index("high")
SPEC = MultipleChoiceSpec(num_choices=3, max_seq_length=16, max_qa_length=6)


@pytest.fixture
def task(tmp_path):
    config = AlbertConfig.from_preset("albert_test")
    tokenizer = write_tokenizer(tmp_path, (f"word{i}" for i in range(config.vocab_size - 5)))
    return MultipleChoiceTask(config, tokenizer, SPEC, dropout_rate=0.0)


def test_metrics_are_shares_of_right_answers_in_all_and_in_each_group():
    probabilities = np.array(
        [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]], np.float32
    )
    metrics = multiple_choice_metrics(
        probabilities, np.array([0, 2, 1, 2]), np.array([MIDDLE, HIGH, HIGH, HIGH])
    )
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


def test_questions_without_groups_have_one_accuracy():
    metrics = multiple_choice_metrics(np.eye(2), np.array([0, 0]), np.zeros(2, np.int64))
    assert metrics["accuracy"] == 0.5
    assert np.isfinite(metrics["loss"])
    assert not {"middle_accuracy", "high_accuracy", "_accuracy"} & set(metrics)


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
        "group_ids": tf.constant([0, 0, 0, 0]),
    }
    means = task.means(task.sums(model, batch, training=True), task.weights(batch))
    metrics = task.metrics({k: v.numpy() for k, v in task.predict(model, batch).items()})
    assert metrics["loss"] != pytest.approx(np.log(3), abs=1e-3)
    for name in ("loss", "accuracy"):
        assert float(means[name]) == pytest.approx(metrics[name], abs=1e-5)


def test_a_task_is_found_again_in_its_folder_and_may_change(task, tmp_path):
    folder = str(tmp_path / "model")
    task.save_files(folder)
    again = MultipleChoiceTask.load(folder)
    assert again.task_file() == task.task_file()
    assert again.config == task.config
    changed = MultipleChoiceTask.load(folder, num_choices=5).spec
    assert changed == dataclasses.replace(SPEC, num_choices=5)
    with pytest.raises(AlbertError, match=r"max_seq_length=9999 exceeds"):
        MultipleChoiceTask.load(folder, max_seq_length=9999)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"task": "squad"}, "for the task 'squad'"), ({"letters": 4}, "does not describe multiple")],
)
def test_folders_of_other_models_are_refused(task, tmp_path, changes, message):
    task.save_files(str(tmp_path))
    path = tmp_path / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(AlbertError, match=message):
        MultipleChoiceTask.load(str(tmp_path))


def test_models_without_dropout_get_the_settings_that_do_not_diverge():
    v1 = load_recipe("race", AlbertConfig.from_preset("albert_base_v1"))
    v2 = load_recipe("race", AlbertConfig.from_preset("albert_base_v2"))
    assert (v1["learning_rate"], v1["dropout"], v1["classifier_dropout"]) == (2e-5, 0.1, 0.1)
    assert (v2["learning_rate"], v2["dropout"], v2["classifier_dropout"]) == (1e-5, 0.0, 0.0)
    assert v1["train_step"] == v2["train_step"] == 12000


def test_results_of_former_predictions_do_not_stay(race, tmp_path):
    questions = read_race(str(race), "dev")
    probabilities = np.full((len(questions), 4), 0.25)
    _write_outputs(questions, probabilities, str(tmp_path))
    assert (tmp_path / "predict_results.json").exists()
    unlabelled = [dataclasses.replace(question, label=None) for question in questions]
    _write_outputs(unlabelled, probabilities, str(tmp_path))
    assert json.loads((tmp_path / "predict_results.json").read_text()) == {}
