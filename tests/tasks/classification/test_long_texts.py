# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts that are cut into windows, whose outputs become one answer a text."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import special

from albert_tf.errors import AlbertError
from albert_tf.tasks.classification.classifier import TextClassifier, TextRegressor
from albert_tf.tasks.classification.spec import ClassificationSpec
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.tables import TextExample
from tests.support.small_tasks import write_run
from tests.tasks.conftest import CONFIG

PAIR = ("a b", "c d e f g")
TEXTS = ["a b c d e f g", "a", "h i j a b", ""]


def example(text, pair=None, label="x"):
    return TextExample("0", text, pair, label, "f:1")


def make_task(tokenizer, labels=("x", "y"), length=6, **settings):
    spec = ClassificationSpec(labels, length, **{"doc_stride": 2, **settings})
    return TextClassificationTask(CONFIG, tokenizer, spec)


def batch_of(data, length=6):
    batch = data.source.batch(range(data.source.num_examples), length)
    return {name: value.numpy() for name, value in batch.items()}


def pieces(tokenizer, data):
    rows = batch_of(data)
    return [
        " ".join(tokenizer.id_to_piece(i) for i in row[:size])
        for row, size in zip(rows["input_word_ids"], rows["input_mask"].sum(axis=1))
    ]


def test_texts_and_second_texts_become_windows(tokenizer):
    data = make_task(tokenizer).encode([example("a b c d e f g", None, "y"), example("")])
    assert pieces(tokenizer, data) == [
        "[CLS] a b c d [SEP]",
        "[CLS] c d e f [SEP]",
        "[CLS] e f g [SEP]",
        "[CLS] [SEP]",
    ]
    assert data.texts.tolist() == [0, 0, 0, 1]
    assert batch_of(data)["label_ids"].tolist() == [1, 1, 1, 0]
    assert "2 examples, 4 windows, 5 tokens on average; labels y 50.0%, x 50.0%" in data.summary
    assert data.notes == []
    pairs = [example("a", "b c d e"), example("a", ""), example("a b c d", "e f g h")]
    data = make_task(tokenizer).encode(pairs)
    assert pieces(tokenizer, data) == [
        "[CLS] a [SEP] b c [SEP]",
        "[CLS] a [SEP] d e [SEP]",
        "[CLS] a [SEP]",
        *(f"[CLS] a b [SEP] {piece} [SEP]" for piece in "efgh"),
    ]
    assert data.notes == ["1 sequence is cut to fit into 6 tokens"]  # A first text.


@pytest.mark.parametrize("weights", [None, "x:3"])
@pytest.mark.parametrize("several", [False, True])
def test_each_text_counts_the_same_in_the_training(weights, several, tokenizer):
    settings = {"class_weights": weights, "multi_label": several}
    labels = [("x",), ("y",), ("y",), ()] if several else ["x", "y", "y", "y"]
    examples = [example(text, None, label) for text, label in zip(TEXTS, labels)]
    task = make_task(tokenizer, **settings)
    data = task.encode(examples, training=True)
    whole = make_task(tokenizer, doc_stride=None, class_weights="x:3", multi_label=several)
    expected = batch_of(whole.encode(examples, training=True))["loss_weights"]
    expected = expected if weights else np.ones_like(expected)
    found = batch_of(data)["loss_weights"]
    sums = [found[data.texts == text].sum(axis=0) for text in range(4)]
    np.testing.assert_allclose(np.array(sums) * 4 / len(found), expected, rtol=1e-6)
    assert "loss_weights" not in batch_of(task.encode(examples))
    if weights is None:
        assert found.mean() == pytest.approx(1)


def test_windows_of_a_number_share_its_loss(tokenizer):
    task = make_task(tokenizer, (), mean=1.0, deviation=2.0)
    examples = [example(text, None, str(i)) for i, text in enumerate(TEXTS)]
    data, model = task.encode(examples, training=True), task.build_model()
    batch = data.source.batch(range(len(data.texts)), 6)
    values = (task.predict(model, batch)["value"].numpy() - 1) / 2
    losses = (values - (data.texts - 1) / 2) ** 2
    losses = [losses[data.texts == text].mean() for text in range(4)]
    means = task.means(task.sums(model, batch, training=False), task.weights(batch))
    assert float(means["loss"]) == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize(
    ("labels", "several", "pooling", "pool", "of_logits"),
    [
        (("x", "y"), False, "mean", np.mean, lambda x: special.softmax(x, axis=-1)),
        (("x", "y"), False, "max", np.max, lambda x: special.softmax(x, axis=-1)),
        (("x", "y"), True, "mean", np.mean, special.expit),
        (("x", "y"), True, "max", np.max, special.expit),
        ((), False, "mean", np.mean, lambda x: 3 * x[:, 0] + 1),
    ],
)
def test_the_answer_to_a_text_pools_the_logits_of_its_windows(
    labels, several, pooling, pool, of_logits, tokenizer, tmp_path
):
    settings = {"multi_label": several, "window_pooling": pooling, "mean": 1.0, "deviation": 3.0}
    task = make_task(tokenizer, labels, **settings)
    write_run(task, tmp_path / "run")
    model = (TextClassifier if labels else TextRegressor).load(tmp_path / "run")
    assert model.task.spec == task.spec
    assert json.loads((tmp_path / "run/task.json").read_text())["doc_stride"] == 2
    data = task.encode([example(text) for text in TEXTS], labelled=False)
    outputs = data.outputs(lambda batch: task.predict(model.model, batch))
    pooled = [pool(outputs["logits"][data.texts == text], axis=0) for text in range(4)]
    found = model.probabilities(TEXTS) if labels else model.predict(TEXTS)
    np.testing.assert_allclose(found, of_logits(np.array(pooled)), atol=1e-5)
    # Metrics and thresholds are of texts.
    given = [("x",), (), ("y",), ("x", "y")] if several else "xyyx" if labels else "1234"
    rows = [dataclasses.replace(x, label=label) for x, label in zip(data.examples, given)]
    metrics = task.metrics(outputs, task.encode(rows))
    if labels and not several:
        right = [task.spec.labels[row.argmax()] == label for row, label in zip(found, given)]
        assert metrics["accuracy"] == np.mean(right)
    if not labels:
        assert metrics["mse"] == pytest.approx(np.mean((found - [1, 2, 3, 4]) ** 2), rel=1e-4)


def test_if_no_text_is_cut_everything_is_as_without_windows(tokenizer):
    examples = [example("a b c"), example("d", None, "y"), example("")]
    tasks = make_task(tokenizer), make_task(tokenizer, doc_stride=None)
    model = tasks[0].build_model()
    pairs = [(task, task.encode(examples, training=True)) for task in tasks]
    (windowed, whole) = (data for _, data in pairs)
    assert windowed.texts is None and windowed.fingerprint == whole.fingerprint
    assert (windowed.summary, windowed.notes) == (whole.summary, whole.notes)
    found, expected = (
        task.of_texts(data, data.outputs(lambda batch, task=task: task.predict(model, batch)))
        for task, data in pairs
    )
    assert {*found} == {*expected} == {"probabilities"}
    assert (found["probabilities"] == expected["probabilities"]).all()


def test_settings_of_windows_that_make_no_sense_are_refused(tokenizer):
    with pytest.raises(AlbertError, match="`window_pooling` needs `doc_stride`"):
        make_task(tokenizer, doc_stride=None, window_pooling="max")
    with pytest.raises(AlbertError, match="`window_pooling`='sum' is unknown; use one of mean"):
        make_task(tokenizer, window_pooling="sum")
    with pytest.raises(AlbertError, match="`doc_stride`=0 must be an integer from 1"):
        make_task(tokenizer, doc_stride=0)
