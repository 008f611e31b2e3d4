# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The pretraining task: its losses, and what they train."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from albert_tf import RunConfig, TrainSpec
from albert_tf.data.context import InputContext
from albert_tf.tasks.pretraining.config import PretrainingConfig
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask, open_inputs
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun

GOLDEN = Path(__file__).parents[2] / "golden"
SENTENCE_WEIGHTS = {
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
    "cls/seq_relationship/output_weights",
    "cls/seq_relationship/output_bias",
}


@pytest.mark.golden
def test_means_are_the_official_losses():
    golden = json.loads((GOLDEN / "golden_fixture.json").read_text())
    case = golden["cases"]["groups1_inner1"]
    weights = np.array(golden["inputs"]["masked_lm_weights"], np.float32)
    nll = np.array(case["mlm_per_position_loss"], np.float32).reshape(weights.shape)
    task = PretrainingTask.__new__(PretrainingTask)
    task.has_order = True
    means = task.means(
        {
            "masked_lm_loss": (nll * weights).sum(),
            "masked_lm_correct": 0.0,
            "sentence_order_loss": 2 * case["sop_loss"],
            "sentence_order_correct": 1.0,
        },
        {"masked_lm": weights.sum(), "sentence_order": 2.0},
    )
    assert means["masked_lm_loss"] == pytest.approx(case["mlm_loss"], abs=2e-6)
    assert means["loss"] == pytest.approx(case["mlm_loss"] + case["sop_loss"], abs=2e-6)
    assert means["sentence_order_accuracy"] == 0.5


def train(task, source, folder, steps):
    """Trains; returns the names of all weights, of the changed ones and of those with moments."""
    config = RunConfig(str(folder), train_batch_size=8, learning_rate=0.01, num_warmup_steps=0)
    estimator = Estimator(task, config)
    run = TrainingRun(estimator, TrainSpec(source.train_input_fn, steps), None)
    weights, slots = estimator.model.named_weights(), run.optimizer.named_slots
    before = {name: weight.numpy() for name, weight in weights.items()}
    run.run()
    changed = {name for name, weight in weights.items() if (weight.numpy() != before[name]).any()}
    # The checkpoint's format does not depend on the objective.
    assert set(slots) == {f"{name}/adam_{slot}" for name in weights for slot in "mv"}
    moved = {name.rsplit("/", 1)[0] for name, slot in slots.items() if slot.numpy().any()}
    return set(weights), changed, moved


@pytest.mark.parametrize("length", [128, pytest.param(512, marks=pytest.mark.slow)])
def test_records_of_the_official_builder_train(config, tmp_path, length):
    config = dataclasses.replace(config, vocab_size=30000, max_position_embeddings=512)
    source = open_records(str(GOLDEN / f"tf1_records/pretrain_{length}.tfrecord"), config)
    assert source.num_examples == 40
    weights, changed, moved = train(PretrainingTask(config, source), source, tmp_path, steps=8)
    assert changed == moved == weights
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["masked_lm_loss"] for line in lines]
    assert losses[0] == pytest.approx(np.log(30000), abs=0.3)
    assert losses[-1] < losses[0]


# By default, training on the official builder's records shows that a sentence loss trains them,
# and tests/training/test_loop.py that nothing does without one.
@pytest.mark.slow
@pytest.mark.parametrize(("objective", "has_loss"), [("sop", True), ("nsp", True), ("none", False)])
def test_pooler_and_sentence_head_are_trained_only_by_a_sentence_loss(
    write_records, config, tmp_path, objective, has_loss
):
    source = open_records(write_records(16, sentence_objective=objective), config)
    task = PretrainingTask(config, source)
    weights, changed, moved = train(task, source, tmp_path / "run", steps=3)
    assert changed == moved == weights - (set() if has_loss else SENTENCE_WEIGHTS)


def test_two_heads_start_with_neighbors_if_asked_to(write_records, config):
    source = open_records(write_records(4), config)
    plain = PretrainingTask(config, source)
    started = PretrainingTask(config, source, neighbor_attention=True)
    assert plain.description() != started.description()
    name = "bert/embeddings/position_embeddings"
    positions = [task.build_model().named_weights()[name].numpy() for task in (plain, started)]
    # Sines and cosines: every position has the same length.
    lengths = [np.linalg.norm(rows, axis=1) for rows in positions]
    assert np.ptp(lengths[0]) > 0.01 and np.ptp(lengths[1]) < 1e-6


def test_the_loss_adds_the_sentence_order_loss_if_the_records_have_an_order(write_records, config):
    task = PretrainingTask(config, open_records(write_records(4), config))
    sums = dict.fromkeys(("masked_lm_correct", "sentence_order_correct"), 0.0)
    sums.update(masked_lm_loss=3.0, sentence_order_loss=10.0)
    weights = {"masked_lm": 1.0, "sentence_order": 5.0}
    assert task.means(sums, weights)["loss"] == pytest.approx(3.0 + 2.0, abs=1e-4)
    task.has_order = False
    assert task.means(sums, weights)["loss"] == pytest.approx(3.0, abs=1e-4)


def test_metrics_average_over_positions_and_over_examples(write_records, config):
    metrics = PretrainingTask(config, open_records(write_records(4), config)).metrics(
        {
            "masked_lm_loss": np.array([3.0, 1.0]),
            "masked_lm_correct": np.array([1.0, 1.0]),
            "masked_lm_weight": np.array([3.0, 1.0]),
            "sentence_order_loss": np.array([0.5, 0.7]),
            "sentence_order_correct": np.array([1.0, 0.0]),
            "masked_lm_ids": np.array([[7, 8, 8, 0], [8, 0, 0, 0]]),
            "next_sentence_labels": np.array([1, 1]),
        }
    )
    assert metrics["masked_lm_loss"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["masked_lm_accuracy"] == pytest.approx(0.5, abs=1e-5)
    assert metrics["sentence_order_loss"] == pytest.approx(0.6)
    assert metrics["sentence_order_accuracy"] == 0.5
    assert metrics["masked_lm_majority"] == 3 / 4
    assert metrics["sentence_order_majority"] == 1


def test_a_model_of_the_most_frequent_piece_and_order_is_no_better_than_a_constant_answer(
    write_records, config
):
    source = open_records(write_records(16), config)
    task = PretrainingTask(config, source)
    model = task.build_model()
    batch = next(iter(source.eval_input_fn(InputContext(16))))
    real = batch["masked_lm_weights"].numpy() > 0
    piece = np.bincount(batch["masked_lm_ids"].numpy()[real]).argmax()
    order = np.bincount(batch["next_sentence_labels"].numpy().ravel()).argmax()
    weights = model.named_weights()
    for name, number in (("predictions", piece), ("seq_relationship", order)):
        bias = weights[f"cls/{name}/output_bias"]
        bias.assign(1e4 * np.eye(bias.shape[0])[number])
    metrics = task.metrics({k: v.numpy() for k, v in task.predict(model, batch).items()})
    note = task.constant_answer_note(metrics)
    assert "masked_lm_accuracy" in note and "sentence_order_accuracy" in note
    source = open_records(write_records(16, sentence_objective="none"), config)
    note = PretrainingTask(config, source).constant_answer_note(metrics)
    assert "sentence_order" not in note


def test_a_preset_takes_the_vocabulary_size_of_the_records(write_records, tmp_path):
    write_records(4)
    given = {"input_file": str(tmp_path), "albert_config_file": "albert_test"}
    assert open_inputs(PretrainingConfig("run", **given))[0].vocab_size == 60
