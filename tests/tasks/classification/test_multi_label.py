# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts with any number of labels, from the data to predictions."""

import csv
import functools
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from albert_tf.errors import AlbertError
from albert_tf.scripts import run_classifier
from albert_tf.tasks.classification.classifier import TextClassifier
from albert_tf.tasks.classification.labels import label_settings
from albert_tf.tasks.classification.metrics import best_thresholds, multi_label_metrics
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.tables import TextColumns, TextExample, read_texts, with_labels
from tests.support.script_flags import run_printed
from tests.tasks.conftest import CONFIG

ANIMALS, OTHERS = ["cat", "dog", "owl"], ["sun", "rain", "road", "tree"]
run = functools.partial(run_printed, run_classifier)


def labels_in(data, separator=None):
    return [x.label for x in read_texts(data, TextColumns("t", None, "l", None, separator), "d")]


def test_labels_are_lists_or_joined_by_a_separator(tmp_path):
    rows = [{"t": "x", "l": label} for label in (["b", "a"], [], "b", None, [3])]
    assert labels_in(rows) == [("b", "a"), (), "b", None, (3,)]
    (tmp_path / "a.csv").write_text("t,l\nx,b | a|\nx,\nx,1| |01\n")
    assert labels_in(str(tmp_path / "a.csv"), "|") == [("b", "a"), (), (1, "01")]
    assert labels_in([{"t": "x", "l": 5}, {"t": "x", "l": None}], "|") == [(5,), ()]
    names = SimpleNamespace(feature=SimpleNamespace(int2str=str, names=["no", "yes"]))
    data = type("Data", (list,), {"features": {"l": names}})([{"t": "x", "l": [1, 0]}])
    assert labels_in(data) == [("yes", "no")]


@pytest.mark.parametrize(
    ("label", "separator", "message"),
    [
        ([1, 0, 1], None, r"d row 0: a label is missing or repeated in 'l', \[1, 0, 1\]; give a"),
        (["a", None], None, "a label is missing or repeated"),
        ([["a"]], None, "'l' must be a string or a number"),
    ],
)
def test_other_lists_are_refused(label, separator, message):
    with pytest.raises(AlbertError, match=message):
        labels_in([{"t": "x", "l": label}], separator)


def examples_with(*labels):
    return [TextExample(None, "a b", None, label, f"f:{i}") for i, label in enumerate(labels)]


def test_the_data_says_whether_a_text_may_have_several_labels(tokenizer):
    found = label_settings(examples_with(("b",), (), "a"), regression=False)
    assert found == {"labels": ("a", "b"), "multi_label": True}
    assert label_settings(examples_with(("b",)), False)["labels"] == ("b",)
    with pytest.raises(AlbertError, match="None of the examples to train on has a label"):
        with_labels(examples_with((), ()))
    spec = ClassificationSpec(("a", "b"), 8, multi_label=True)
    task = TextClassificationTask(CONFIG, tokenizer, spec)
    values = task.encode(examples_with(("b",), (), "a", ("b", "a"))).source.batch(range(4), 8)
    assert values["label_ids"].numpy().tolist() == [[0, 1], [0, 0], [1, 0], [1, 1]]
    with pytest.raises(AlbertError, match="f:1: the label 'c' does not occur in the training data"):
        task.encode(examples_with((), ("a", "c")))
    with pytest.raises(AlbertError, match="use one of mean_average_precision, micro_f1, macro_f1"):
        ClassificationSpec(("a", "b"), 8, multi_label=True, best_metric="accuracy")
    with pytest.raises(AlbertError, match="the labels a, b, of which each text must have one"):
        ClassificationSpec(("a", "b"), 8, multi_label=True, positive_label="a")


@pytest.mark.parametrize(
    ("weights", "expected"), [(None, [1, 1]), ("b:3", [1, 3]), ("balanced", [1 / 3, 1 / 4])]
)
def test_the_loss_is_that_of_each_label_and_weights_are_of_texts_that_have_it(
    weights, expected, tokenizer
):
    spec = ClassificationSpec(("a", "b"), 8, multi_label=True, class_weights=weights)
    task = TextClassificationTask(CONFIG, tokenizer, spec)
    labels = [("b", "a"), ("b",), ("b", "a"), ("a", "b")]
    data = task.encode(examples_with(*labels), training=True)
    batch, model = data.source.batch(range(4), 8), task.build_model()
    model.named_weights()["output_bias"].assign([2.0, -1.0])
    p, has = task.predict(model, batch)["probabilities"].numpy(), batch["label_ids"].numpy()
    losses = -np.log(np.where(has, p, 1 - p)) * np.where(has, expected, 1)
    loss = float(task.sums(model, batch, training=False)["loss"])
    assert loss == pytest.approx(losses.mean(axis=1).sum(), rel=1e-5)


@pytest.mark.parametrize("number", [1, 2, 1000])
def test_metrics_are_those_of_scikit_learn_and_thresholds_the_best(number):
    rng = np.random.default_rng(number)
    labels = rng.random([60, number]) < np.linspace(0.02, 0.9, number)
    labels[:, 0] = number > 1 and labels[:, 0]
    probabilities = (rng.random([60, number]) / 2 + labels / 4).round(2).astype(np.float32)
    thresholds = best_thresholds(probabilities, labels)
    chosen = probabilities > thresholds
    occurs = np.flatnonzero(labels.any(axis=0))

    def f1(label, predicted):
        return metrics.f1_score(labels[:, label], predicted, zero_division=0)

    for label in occurs[:20]:
        column = probabilities[:, label]
        best = max(f1(label, column >= value) for value in column)
        assert f1(label, chosen[:, label]) == best
        assert np.abs(column - thresholds[label]).min() > 0.004
    assert (thresholds[~labels.any(axis=0)] == 0.5).all()
    found = multi_label_metrics(probabilities, chosen, labels)
    counted = [label for label in range(number) if (labels | chosen)[:, label].any()]
    truth, predicted = labels.ravel(), chosen.ravel()
    assert found["micro_f1"] == pytest.approx(metrics.f1_score(truth, predicted, zero_division=0))
    per_label = [f1(label, chosen[:, label]) for label in counted]
    assert found["macro_f1"] == pytest.approx(np.mean(per_label or [0.0]))
    if len(occurs):
        expected = metrics.average_precision_score(labels[:, occurs], probabilities[:, occurs])
        assert found["mean_average_precision"] == pytest.approx(expected)
    # A model that answers every text alike is no better than all labels for every one.
    same = np.full_like(probabilities, 0.3)
    alike = multi_label_metrics(same, same > best_thresholds(same, labels), labels)
    for name in ("mean_average_precision", "micro_f1", "macro_f1"):
        assert alike[name] <= alike[f"majority_{name}"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of data and of a run, whose flags it returns too."""
    folder, rng = tmp_path_factory.mktemp("labels"), random.Random(0)
    for name, size in (("train", 240), ("dev", 40), ("other", 20)):
        rows = ["text,animals"]
        for _ in range(size):
            words = rng.sample([*ANIMALS, *OTHERS], 4)
            rows.append(f"{' '.join(words)},{';'.join(sorted({*words} & {*ANIMALS}))}")
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    (folder / "new.csv").write_text("text\n" + "cat sun\nsun road\ndog owl cat\n")
    flags = {"do_eval": True, "eval_file": folder / "dev.csv", "output_dir": folder / "run"}
    flags |= {"do_predict": True, "predict_file": folder / "new.csv"}
    training = {"train_file": folder / "train.csv", "label_column": "animals"}
    training |= {"label_separator": ";", "max_seq_length": 8, "learning_rate": 3e-4}
    training |= {"train_step": 40, "eval_every_steps": 20}
    printed = run(do_train=True, **training, **flags)
    return folder, flags, printed


def thresholds_of(folder):
    return json.loads((folder / "run/thresholds.json").read_text())


def test_a_run_learns_labels_keeps_their_thresholds_and_uses_them(trained, tmp_path):
    folder, flags, printed = trained
    assert "train: 240 examples" in printed and "; labels " in printed
    results = json.loads((folder / "run/eval_results.json").read_text())
    assert results["macro_f1"] > 0.9 > 0.8 > results["majority_macro_f1"]
    kept = thresholds_of(folder)
    assert kept["thresholds"].keys() == {*ANIMALS}
    assert kept["checkpoint"].startswith("best/ckpt-")
    run(**{**flags, "eval_file": folder / "other.csv"})  # On other examples, they stay.
    assert thresholds_of(folder) == kept
    with (folder / "run/predictions.tsv").open() as file:
        rows = [*csv.DictReader(file, delimiter="\t")]
    assert [row["prediction"] for row in rows] == ["cat", "", "cat|dog|owl"]
    classifier = TextClassifier.load(folder / "run")
    found = classifier.predict([row["text"] for row in rows])
    assert [sorted(x.label for x in labels) for labels in found] == [["cat"], [], ANIMALS]
    scores = [x.probability for x in found[2]]
    assert scores == sorted(scores, reverse=True)
    # The run computes in bfloat16 where there are units for it.
    assert scores[0] == pytest.approx(max(float(rows[2][name]) for name in ANIMALS), abs=0.01)
    # Thresholds decide, not one half.
    classifier.task.thresholds = {**kept["thresholds"], "cat": 1.0}
    assert classifier.predict(["cat sun"]) == [[]]
    classifier.export(tmp_path / "exported")
    classify = tf.saved_model.load(str(tmp_path / "exported"))
    chosen = classify(tf.constant(["cat sun", "sun road", "dog owl cat"]))["chosen"].numpy()
    assert chosen.tolist() == [[False] * 3, [False] * 3, [False, True, True]]
