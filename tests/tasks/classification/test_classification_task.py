# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextColumns, TextExample
from albert_tf.tasks.classification.features import label_set
from albert_tf.tasks.classification.task import (
    ClassificationSpec,
    TextClassificationTask,
)
from albert_tf.tokenization.tokenizer import Tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
CONFIG = AlbertConfig(
    vocab_size=len(PIECES),
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
)
COLUMNS = TextColumns("text", "pair", "label")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES))
    return Tokenizer.from_file(str(path))


def new_task(examples, columns, config, tokenizer, regression=False, max_seq_length=16):
    labels = () if regression else label_set(examples)
    spec = ClassificationSpec(labels, max_seq_length, columns)
    return TextClassificationTask(config, tokenizer, spec)


def examples_with(*labels):
    return [TextExample(str(i), "a b", None, label, f"f:{i}") for i, label in enumerate(labels)]


def random_batch(labels, length=8):
    ids = np.random.default_rng(0).integers(5, 8, (len(labels), length))
    return {
        "input_word_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.ones([len(labels), length], tf.int32),
        "input_type_ids": tf.zeros([len(labels), length], tf.int32),
        "label_ids": tf.constant(labels),
    }


def as_numbers(values):
    return {name: float(value) for name, value in values.items()}


def test_training_loss_and_accuracy_are_those_of_the_evaluation(tokenizer):
    """Two ways to the same numbers: sums and means in the graph, and metrics of predictions."""
    task = TextClassificationTask(
        CONFIG, tokenizer, ClassificationSpec(("x", "y", "z"), 8, COLUMNS)
    )
    model = task.build_model()
    for weight in model.trainable_variables:  # Far from uniform predictions.
        weight.assign(weight * 5 + 0.1)
    batch = random_batch([0, 1, 2, 2, 1])
    means = task.means(task.sums(model, batch, training=False), task.weights(batch))
    outputs = {k: v.numpy() for k, v in task.predict(model, batch).items()}
    assert outputs["probabilities"].shape == (5, 3)
    metrics = task.metrics(outputs)
    means = as_numbers(means)
    assert means["loss"] == pytest.approx(metrics["loss"], rel=1e-5)
    assert means["accuracy"] == pytest.approx(metrics["accuracy"])
    assert abs(means["loss"] - np.log(3)) > 1e-3
    assert task.best_metric in metrics


def test_regression_minimises_the_mean_squared_error(tokenizer):
    task = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec((), 8, COLUMNS))
    model = task.build_model()
    batch = random_batch([0.5, -1.0, 4.0])
    means = as_numbers(task.means(task.sums(model, batch, False), task.weights(batch)))
    outputs = {k: v.numpy() for k, v in task.predict(model, batch).items()}
    assert outputs["values"].shape == (3,)
    expected = np.mean((outputs["values"] - [0.5, -1.0, 4.0]) ** 2)
    assert means["loss"] == pytest.approx(expected, rel=1e-5)
    metrics = task.metrics(outputs)
    assert metrics["mse"] == pytest.approx(expected, rel=1e-5)
    assert task.best_metric in metrics


def test_sums_and_weights_add_up_over_parts_of_a_batch(tokenizer):
    task = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(("x", "y"), 8, COLUMNS))
    model = task.build_model()
    batch = random_batch([0, 1, 1, 0])
    whole = as_numbers(task.means(task.sums(model, batch, False), task.weights(batch)))
    parts = [{k: v[rows] for k, v in batch.items()} for rows in (slice(0, 1), slice(1, 4))]
    sums = [task.sums(model, part, False) for part in parts]
    weights = [task.weights(part) for part in parts]
    added = task.means(
        {k: sums[0][k] + sums[1][k] for k in sums[0]},
        {k: weights[0][k] + weights[1][k] for k in weights[0]},
    )
    assert as_numbers(added) == pytest.approx(whole, rel=1e-5)


def test_examples_become_batches_of_the_task(tokenizer, tmp_path, capsys):
    examples = examples_with("x", "y", "x", "x", "x")
    task = new_task(examples, COLUMNS, CONFIG, tokenizer, max_seq_length=8)
    assert task.spec.labels == ("x", "y")
    examples[2] = dataclasses.replace(examples[2], text=" ")
    source = task.open_examples(examples, "eval", str(tmp_path)).source
    batches = list(source.eval_input_fn(InputContext(4)))
    assert [b["example_index"].numpy().tolist() for b in batches] == [[0, 1, 2, 3], [4, -1, -1, -1]]
    np.testing.assert_array_equal(batches[0]["label_ids"], [0, 1, 0, 0])
    printed = capsys.readouterr().out
    assert "eval: 5 examples, 4 tokens on average" in printed
    assert "labels x 80.0%, y 20.0%" in printed
    assert "Warning: 1 of the 5 eval examples have an empty text, the first at f:2." in printed


def test_opening_data_does_not_change_the_task(tokenizer, tmp_path):
    task = new_task(examples_with("x", "y"), COLUMNS, CONFIG, tokenizer, max_seq_length=8)
    before = dict(vars(task))
    task.open_examples(examples_with("x", "y", "x", "x"), "train", str(tmp_path), train_seed=1)
    assert vars(task) == before


def test_the_plateau_is_that_of_the_data_trained_on_whatever_was_opened_last(tokenizer, tmp_path):
    task = new_task(examples_with("x", "y"), COLUMNS, CONFIG, tokenizer, max_seq_length=8)
    even, uneven = (
        task.open_examples(examples_with(*labels), "train", str(tmp_path), train_seed=1)
        for labels in (("x", "y"), ("x", "x", "x", "y"))
    )
    for data, share in ((even, 1 / 2), (uneven, 1 / 4)):
        (plateau,) = task.plateaus(data.source.description)
        entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
        assert plateau.chance() == pytest.approx(entropy)
    assert task.plateaus({}) == ()


def test_saved_task_is_loaded_as_it_was_with_other_columns_if_given(tokenizer, tmp_path):
    task = new_task(examples_with("x", "y"), COLUMNS, CONFIG, tokenizer, max_seq_length=9)
    task.save_files(str(tmp_path))
    loaded = TextClassificationTask.load(str(tmp_path))
    assert loaded.description() == task.description()
    assert loaded.spec == task.spec
    assert (
        TextClassificationTask.load(str(tmp_path), columns={"text": "body"}).spec.columns.text
        == "body"
    )


def test_task_file_that_describes_no_classifier_is_refused(tmp_path):
    value = {"task": "text_classification", "labels": ["x"]}
    (tmp_path / "task.json").write_text(json.dumps(value))
    with pytest.raises(AlbertError, match="does not describe a classifier"):
        TextClassificationTask.load(str(tmp_path))
