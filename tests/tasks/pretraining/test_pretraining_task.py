# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, EvalSpec, RunConfig, TrainSpec
from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining.task import (
    PretrainingTask,
    check_held_out,
    model_config,
    open_records,
)
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from tests.support.small_tasks import PIECES, open_small_task

GOLDEN = Path(__file__).parents[2] / "golden"

LENGTH, PREDICTIONS, VOCAB = 24, 4, 60
CONFIG = AlbertConfig(
    vocab_size=VOCAB,
    embedding_size=32,
    hidden_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=LENGTH,
)


def write_records(folder, examples, seed=0, **options):
    """Records of random tokens whose second half repeats the first or, if swapped, reverses it."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCAB, (examples, LENGTH))
    positions = np.sort(
        rng.permuted(np.tile(np.arange(1, LENGTH), (examples, 1)), axis=1)[:, :PREDICTIONS], axis=1
    )
    labels = np.take_along_axis(ids, positions, 1)
    masked = ids.copy()
    np.put_along_axis(masked, positions, 4, 1)
    ones = np.ones_like(ids)
    columns = {
        "input_ids": masked,
        "input_mask": ones,
        "segment_ids": ones * (np.arange(LENGTH) >= LENGTH // 2),
        "token_boundary": ones,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": np.ones(positions.shape, np.float32),
        "next_sentence_labels": rng.integers(0, 2, examples),
    }
    features = records.pretraining_features(LENGTH, PREDICTIONS)
    path = str(folder / f"seed-{seed}.tfrecord")
    info = records.write_shard(path, records.encode_examples(columns, features))
    tokenizer = {"vocab_size": options.pop("vocab_size", VOCAB)}
    Manifest("pretraining", features, [info], tokenizer, options, {}).save(str(folder))
    return path


@pytest.mark.golden
def test_means_are_the_official_losses():
    golden = json.loads((GOLDEN / "golden_fixture.json").read_text())
    case = golden["cases"]["groups1_inner1"]
    weights = np.array(golden["inputs"]["masked_lm_weights"], np.float32)
    nll = np.array(case["mlm_per_position_loss"], np.float32).reshape(weights.shape)
    task = PretrainingTask.__new__(PretrainingTask)
    task.sop_weight = 1.0
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


# By default, few steps on the official builder's records show that the loss falls.
@pytest.mark.slow
def test_64_sequences_are_learned_by_heart_in_under_2000_steps(tmp_path):
    path = write_records(tmp_path, 64)
    source = open_records(path, CONFIG)
    task = PretrainingTask(CONFIG, source)
    config = RunConfig(
        str(tmp_path / "run"),
        train_batch_size=64,
        eval_batch_size=64,
        learning_rate=0.01,
        num_warmup_steps=50,
    )
    estimator = Estimator(task, config)
    results = estimator.train_and_evaluate(
        TrainSpec(source.train_input_fn, 600), EvalSpec(source.eval_input_fn)
    )
    assert results["masked_lm_accuracy"] > 0.99
    assert results["sentence_order_accuracy"] == 1.0
    assert results["sentence_order_loss"] < 0.1


def train_and_compare(estimator, source, steps):
    """Trains; gives the names of all weights, of those that changed, and of those with slots."""
    run = TrainingRun(estimator, TrainSpec(source.train_input_fn, steps), None)
    weights, slots = estimator.model.named_weights(), run.optimizer.named_slots()
    before = {name: weight.numpy() for name, weight in weights.items()}
    run.run()
    changed = {name for name, weight in weights.items() if (weight.numpy() != before[name]).any()}
    # The checkpoint's format does not depend on the objective.
    assert set(slots) == {f"{name}/adam_{slot}" for name in weights for slot in "mv"}
    moved = {name.rsplit("/", 1)[0] for name, slot in slots.items() if slot.numpy().any()}
    return set(weights), changed, moved


@pytest.mark.parametrize("length", [128, pytest.param(512, marks=pytest.mark.slow)])
def test_records_of_the_official_builder_train(tmp_path, length):
    config = dataclasses.replace(CONFIG, vocab_size=30000, max_position_embeddings=512)
    source = open_records(str(GOLDEN / f"tf1_records/pretrain_{length}.tfrecord"), config)
    assert source.num_examples == 40
    run = RunConfig(str(tmp_path), train_batch_size=8, learning_rate=0.01, num_warmup_steps=0)
    estimator = Estimator(PretrainingTask(config, source), run)
    weights, changed, moved = train_and_compare(estimator, source, 8)
    assert changed == moved == weights
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["masked_lm_loss"] for line in lines]
    assert losses[0] == pytest.approx(np.log(30000), abs=0.3)
    assert losses[-1] < losses[0]


# By default, training on the official builder's records shows that a sentence loss trains them,
# and tests/training/test_loop.py that nothing does without one.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "sop_weight", "has_loss"),
    [("sop", 1.0, True), ("nsp", 1.0, True), ("sop", 0.0, False), ("none", 1.0, False)],
)
def test_pooler_and_sentence_head_are_trained_only_by_a_sentence_loss(
    tmp_path, objective, sop_weight, has_loss
):
    path = write_records(tmp_path, 16, sentence_objective=objective)
    source = open_records(path, CONFIG)
    config = RunConfig(
        str(tmp_path / "run"), train_batch_size=8, learning_rate=0.01, num_warmup_steps=0
    )
    estimator = Estimator(PretrainingTask(CONFIG, source, sop_weight), config)
    weights, changed, moved = train_and_compare(estimator, source, 3)
    of_sentences = {
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
        "cls/seq_relationship/output_weights",
        "cls/seq_relationship/output_bias",
    }
    assert changed == moved == weights - (set() if has_loss else of_sentences)


def test_records_without_a_sentence_objective_have_no_sop_loss(tmp_path):
    path = write_records(tmp_path, 4, sentence_objective="none")
    task = PretrainingTask(CONFIG, open_records(path, CONFIG))
    assert task.sop_weight == 0.0


def test_metrics_weigh_positions_and_examples_alike_in_any_batching(tmp_path):
    path = write_records(tmp_path, 20)
    source = open_records(path, CONFIG)
    task = PretrainingTask(CONFIG, source)
    outputs = {
        "masked_lm_loss": np.array([3.0, 1.0]),
        "masked_lm_correct": np.array([1.0, 1.0]),
        "masked_lm_weight": np.array([3.0, 1.0]),
        "sentence_order_loss": np.array([0.5, 0.7]),
        "sentence_order_correct": np.array([1.0, 0.0]),
    }
    metrics = task.metrics(outputs)
    assert metrics["masked_lm_loss"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["masked_lm_accuracy"] == pytest.approx(0.5, abs=1e-5)
    assert metrics["sentence_order_loss"] == pytest.approx(0.6)
    assert metrics["sentence_order_accuracy"] == 0.5


def test_a_preset_takes_the_vocabulary_size_of_the_records(tmp_path):
    write_records(tmp_path, 4)
    assert model_config("albert_test", str(tmp_path)).vocab_size == VOCAB


@pytest.mark.parametrize(
    ("options", "lengths", "sentence"),
    [
        ({"vocab_size": 61}, {}, "use a vocabulary of 61 pieces, the model has vocab_size=60"),
        ({}, {"max_seq_length": 32}, "have max_seq_length=24, not 32"),
        ({}, {"max_predictions_per_seq": 5}, "have max_predictions_per_seq=4, not 5"),
    ],
)
def test_records_that_disagree_are_refused(tmp_path, options, lengths, sentence):
    write_records(tmp_path, 4, **options)
    with pytest.raises(AlbertError, match=sentence):
        open_records(str(tmp_path), CONFIG, **lengths)


def test_records_longer_than_the_model_are_refused(tmp_path):
    write_records(tmp_path, 4)
    config = dataclasses.replace(CONFIG, max_position_embeddings=16)
    with pytest.raises(AlbertError, match="length 24, the model has max_position_embeddings=16"):
        open_records(str(tmp_path), config)


def test_other_records_without_manifest_are_refused(tmp_path):
    example = tf.train.Example().SerializeToString()
    records.write_shard(str(tmp_path / "other"), [example])
    with pytest.raises(AlbertError, match="does not hold pretraining records"):
        open_records(str(tmp_path / "other"), CONFIG)


def test_an_empty_file_without_manifest_is_refused(tmp_path):
    records.write_shard(str(tmp_path / "empty"), [])
    with pytest.raises(AlbertError, match="holds no examples"):
        open_records(str(tmp_path / "empty"), CONFIG)


@pytest.fixture(scope="module")
def compact_records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compact")
    open_small_task("compact", dataclasses.replace(CONFIG, vocab_size=len(PIECES)), folder)
    return folder / "compact-16/records"


@pytest.mark.parametrize(
    ("part", "changes", "sentence"),
    [
        ("options", {"ngram": None}, "lack ngram; build the records again"),
        ("options", {"masked_lm_prob": 2.0}, "are out of range"),
        ("tokenizer", {"vocab_size": None}, "has no valid vocab_size of the tokenizer"),
        ("tokenizer", {"sha256": "0"}, "is not the tokenizer these records were made with"),
        ("features", {"word_starts": None}, "is not that of compact ones"),
    ],
)
def test_compact_records_with_a_changed_manifest_are_refused(
    compact_records, tmp_path, part, changes, sentence
):
    folder = shutil.copytree(compact_records, tmp_path / "records")
    value = json.loads((folder / "manifest.json").read_text())
    changed = {**value[part], **changes}
    value[part] = {name: entry for name, entry in changed.items() if entry is not None}
    (folder / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(AlbertError, match=sentence):
        open_records(str(folder), dataclasses.replace(CONFIG, vocab_size=len(PIECES)))


def test_compact_records_need_their_tokenizer(compact_records, tmp_path):
    folder = shutil.copytree(compact_records, tmp_path / "records")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(AlbertError, match=r"need tokenizer.json beside them"):
        open_records(str(folder), dataclasses.replace(CONFIG, vocab_size=len(PIECES)))


def test_the_same_shard_for_training_and_evaluation_is_refused(tmp_path):
    path = write_records(tmp_path, 4)
    (tmp_path / "link").symlink_to(path)
    for same in (path, f"{tmp_path}/../{tmp_path.name}/{Path(path).name}", str(tmp_path / "link")):
        with pytest.raises(AlbertError, match="is in --input_file and in --eval_input_file"):
            check_held_out(str(tmp_path), same)
