# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors name the corrupt records of the data that the batch came from, and of no other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertError, Estimator, EvalSpec, RunConfig, TrainSpec
from albert_tf.data import record_files, records
from albert_tf.data.pipeline import RecordSource
from albert_tf.errors import StoppedError
from albert_tf.keras2 import keras
from albert_tf.training.task import Task
from tests.support.numbered_records import small_blocks, with_checksum

PIECES = 5
FEATURES = records.pretraining_features(3, 1)
LABELS = "next_sentence_labels"


class Scores(keras.Model):
    """Scores a sequence by the mean of a weight for each piece."""

    def __init__(self):
        super().__init__()
        self.scores = tf.Variable(tf.zeros([PIECES]), name="scores")

    def named_weights(self):
        return {"scores": self.scores}

    def call(self, ids):
        return tf.reduce_mean(tf.gather(self.scores, ids), -1)


class ScoringTask(Task):
    """Learns the labels as scores."""

    name, best_metric = "scoring", "loss"

    def __init__(self, watch=lambda scores, training: scores):
        self._watch = watch

    def description(self):
        return {}

    def save_files(self, folder):
        pass

    def build_model(self, dtype):
        return Scores()

    def weights(self, batch):
        return {"examples": tf.cast(tf.shape(batch[LABELS])[0], tf.float32)}

    def sums(self, model, batch, training):
        scores = self._watch(model(batch["input_word_ids"]), training)
        return {"loss": tf.reduce_sum((scores - tf.cast(batch[LABELS], tf.float32)) ** 2)}

    def means(self, sums, weights):
        return {"loss": sums["loss"] / weights["examples"]}

    def predict(self, model, batch):
        return {"score": self._watch(model(batch["input_word_ids"]), False)}

    def metrics(self, outputs, examples=None):
        return {"loss": float(np.mean(outputs["score"]))}


def write(path, piece=3):
    """Writes ten records."""
    columns = {name: np.zeros((10, *spec.shape), int) for name, spec in FEATURES.items()}
    columns["input_ids"] += [2, piece, 3]
    columns["input_mask"] += 1
    records.write_shard(str(path), records.encode_examples(columns, FEATURES))
    return path


def flip(path, number):
    """Damages the payload of one of ten records."""
    data = bytearray(path.read_bytes())
    data[len(data) // 10 * number + 20] ^= 1
    path.write_bytes(data)


def empty(path, number):
    """Removes the features of one of ten records, with a valid checksum."""
    examples = list(record_files.read_examples(str(path)))
    examples[number] = bytes(len(examples[number]))
    records.write_shard(str(path), examples)


def rename(path, number):
    """Renames a feature of one of ten records to a name that is not UTF-8."""
    examples = list(record_files.read_examples(str(path)))
    examples[number] = examples[number].replace(b"labels", b"\xff\xfeabel")
    records.write_shard(str(path), examples)


def lengthen(path, number):
    """Gives one of ten records a length that fits into no memory, with a valid checksum."""
    data = bytearray(path.read_bytes())
    at = len(data) // 10 * number
    data[at : at + 12] = with_checksum(1 << 40)
    path.write_bytes(data)


def source(path):
    return RecordSource([str(path)], FEATURES, vocab_size=PIECES)


def estimator(folder, task=None):
    config = RunConfig(
        str(folder / "run"), train_batch_size=5, eval_batch_size=5, num_warmup_steps=1
    )
    return Estimator(task or ScoringTask(), config)


@pytest.fixture(autouse=True)
def buffers_of_five_records():
    with small_blocks(5, 1):
        yield


@pytest.fixture
def shards(tmp_path):
    return [write(tmp_path / name) for name in ("train", "held_out")]


@pytest.mark.parametrize("kind", ["train", "evaluate while training", "evaluate", "predict"])
def test_an_error_of_the_model_is_raised_without_reading_the_data_again(tmp_path, shards, kind):
    def fail(values, training):
        if training != (kind == "train"):
            return values
        with tf.control_dependencies([tf.debugging.assert_greater(values, 1e9, "too small")]):
            return tf.identity(values)

    train, held_out = source(shards[0]), source(shards[1])
    made = estimator(tmp_path, ScoringTask(fail))
    # Reading the data again would find this damage; the one step of training does not reach it.
    flip(shards[0], 9)
    if kind == "predict":
        made.train_and_evaluate(TrainSpec.of(train, 1))
        flip(shards[1], 9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
        if kind == "predict":
            made.predict(held_out.eval_input_fn, max_steps=1)
        elif kind == "evaluate":
            made.outputs(EvalSpec(held_out.eval_input_fn))
        else:
            spec = TrainSpec.of(train, 1)
            made.train_and_evaluate(spec, EvalSpec(held_out.eval_input_fn))


def test_damage_to_held_out_records_is_named_even_if_training_records_are_damaged(tmp_path, shards):
    train, held_out = source(shards[0]), source(shards[1])
    flip(shards[1], 4)
    flip(shards[0], 9)  # The one step of training does not reach it.
    with pytest.raises(AlbertError, match="held_out: record 4 "):
        estimator(tmp_path).train_and_evaluate(
            TrainSpec.of(train, 1), EvalSpec(held_out.eval_input_fn)
        )


def test_a_damaged_record_to_predict_is_named(tmp_path, shards):
    made = estimator(tmp_path)
    made.train_and_evaluate(TrainSpec.of(source(shards[0]), 1))
    for number, damage in enumerate((flip, empty, rename, lengthen), 3):
        path = write(tmp_path / damage.__name__)
        opened = source(path)
        damage(path, number)
        named = rf"{path}: record {number} \(byte \d+\): .*; build it again"
        with pytest.raises(AlbertError, match=named):
            made.predict(opened.eval_input_fn)


def test_an_id_that_the_model_does_not_have_is_named(tmp_path):
    opened = source(write(tmp_path / "other", piece=PIECES))
    made = estimator(tmp_path)
    sentence = r"other: record 0 \(byte 0\): input_ids has a number outside 0 … 4;"
    with pytest.raises(AlbertError, match=sentence):
        made.train_and_evaluate(TrainSpec.of(opened, 1))
    with pytest.raises(AlbertError, match=sentence):
        made.outputs(EvalSpec(opened.eval_input_fn))


def test_a_shard_that_was_replaced_by_another_is_named(tmp_path, shards):
    opened, made = source(shards[0]), estimator(tmp_path)
    write(shards[0], piece=300)  # Its records are longer.
    opened.vocab_size = None
    with pytest.raises(AlbertError, match=r"differs from its manifest, .* has another checksum"):
        made.train_and_evaluate(TrainSpec.of(opened, 4))


def test_a_shard_that_is_gone_is_named(tmp_path, shards):
    opened = source(shards[0])
    shards[0].unlink()
    with pytest.raises(StoppedError, match=r"cannot be read \(.*train; No such file"):
        estimator(tmp_path).outputs(EvalSpec(opened.eval_input_fn))


def test_a_shard_that_may_not_be_read_is_named(tmp_path, shards, unprivileged):
    opened = source(shards[0])
    made = estimator(tmp_path)
    shards[0].chmod(0)
    with unprivileged(), pytest.raises(StoppedError, match=r"read \(.*train; Permission denied"):
        made.outputs(EvalSpec(opened.eval_input_fn))
