# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts and pairs as sequences, and their labels."""

import numpy as np
import pytest
from scipy import stats

from albert_tf.errors import AlbertError
from albert_tf.tasks.classification.labels import label_set, label_settings, label_values
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.tables import TextExample, with_labels
from tests.tasks.conftest import CONFIG


def example(text, pair=None, label="x", where="data.tsv:2"):
    return TextExample("0", text, pair, label, where)


def encode(tokenizer, examples, length=8, labels=("x", "y"), **options):
    task = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(labels, length))
    data = task.encode(examples, **options)
    batch = data.source.batch(range(len(examples)), length)
    columns = {name: value.numpy() for name, value in batch.items()}
    return columns, "; ".join([data.summary, *data.notes])


def pieces(tokenizer, batch):
    return [
        " ".join(tokenizer.id_to_piece(i) for i in row[:size])
        for row, size in zip(batch["input_word_ids"], batch["input_mask"].sum(1))
    ]


def test_single_texts_and_pairs_are_joined_to_sequences(tokenizer):
    examples = [example("a b"), example("a", "b c", "y"), example("a", ""), example("")]
    batch, summary = encode(tokenizer, examples)
    assert pieces(tokenizer, batch) == [
        "[CLS] a b [SEP]",
        "[CLS] a [SEP] b c [SEP]",
        "[CLS] a [SEP]",
        "[CLS] [SEP]",
    ]
    np.testing.assert_array_equal(batch["input_type_ids"].sum(1), [0, 3, 0, 0])
    np.testing.assert_array_equal(batch["label_ids"], [0, 1, 0, 0])
    assert "4 examples, 4 tokens on average; labels x 75.0%, y 25.0%" in summary


def test_long_texts_are_cut_at_their_ends(tokenizer):
    examples = [example("a b c d e f g"), example("a b c d", "e f g h"), example("a")]
    batch, summary = encode(tokenizer, examples, 6)
    assert pieces(tokenizer, batch) == [
        "[CLS] a b c d [SEP]",
        "[CLS] a b [SEP] e [SEP]",
        "[CLS] a [SEP]",
    ]
    assert "; 2 sequences are cut to fit into 6 tokens" in summary


def test_unlabelled_texts_get_the_label_0_and_others_must_be_known(tokenizer):
    batch, summary = encode(tokenizer, [example("a", label="z")], labelled=False)
    np.testing.assert_array_equal(batch["label_ids"], [0])
    assert "labels" not in summary
    with pytest.raises(AlbertError, match="the label 'z' does not occur in the training data"):
        encode(tokenizer, [example("a", label="z")])


def with_each(*labels):
    return [example("a", label=label) for label in labels]


@pytest.mark.parametrize(
    ("given", "labels", "values"),
    [
        (["b", "a", "c", "a"], ("a", "b", "c"), [1, 0, 2, 0]),
        (["10", "9", "1"], ("1", "10", "9"), [1, 2, 0]),  # Texts.
        ([10, 9, -1, 9], (-1, 9, 10), [2, 1, 0, 1]),
        ([2.5, 10, 0.0], (0.0, 2.5, 10), [1, 2, 0]),
        ([True, False], (False, True), [1, 0]),
        ([1, "a", True], ("1", "a", "true"), [0, 1, 2]),
        ([1, 1.0], ("1", "1.0"), [0, 1]),
        ([2**70, 3], ("1180591620717411303424", "3"), [0, 1]),
    ],
)
def test_labels_keep_their_type_and_order_and_become_their_index(given, labels, values):
    found = label_set(with_each(*given))
    assert [*map(repr, found)] == [*map(repr, labels)]
    np.testing.assert_array_equal(label_values(with_each(*given), found), values)
    ClassificationSpec(found, 8)


def test_labels_are_found_as_they_are_written_or_by_their_value():
    examples = with_each(1, 1.0, "1")
    np.testing.assert_array_equal(label_values(examples, (0, 1)), [1, 1, 1])
    np.testing.assert_array_equal(label_values(examples, ("1", "1.0")), [0, 1, 0])
    with pytest.raises(AlbertError, match="the label '01' does not occur in the training data"):
        label_values(with_each("01"), (0, 1))
    assert label_set(with_each("a", "c", "b"), ("c", "d", "b", "a")) == ("c", "b", "a")


def test_numbers_to_learn_have_mean_0_and_deviation_1(tokenizer):
    examples = with_each(1000, "4e2", 100.0)
    settings = label_settings(examples, regression=True)
    assert settings == {"labels": (), "mean": 500.0, "deviation": pytest.approx(374.1657387)}
    spec = ClassificationSpec(**settings, max_seq_length=8)
    task = TextClassificationTask(CONFIG, tokenizer, spec)
    targets = task.encode(examples).source.batch(range(3), 8)["label_ids"].numpy()
    np.testing.assert_allclose(targets, stats.zscore([1000, 400, 100]), rtol=1e-6)
    for equal in ([3, 3.0, "3"], [1.7e9, 1.7e9 + 10]):
        with pytest.raises(AlbertError, match=r"are all (3|1.7e.09), or differ too little"):
            label_settings(with_each(*equal), regression=True)


@pytest.mark.parametrize("label", ["good", "nan", "inf", 3.5e38, "-1e19", 10**400, True])
def test_regression_labels_that_are_not_numbers_are_refused(label):
    with pytest.raises(AlbertError, match=r"data\.tsv:2: the label .* is not a number from"):
        label_values(with_each(label), ())


def test_rows_without_a_label_are_left_out_of_the_training_only(capsys):
    examples = with_each("x", None, 0, None)
    assert [x.label for x in with_labels(examples)] == ["x", 0]
    assert "train: 2 of 4 rows have no label and are left out." in capsys.readouterr().out
    with pytest.raises(AlbertError, match=r"data\.tsv:2: the label is missing"):
        label_values(examples, ("x", "y"))
    with pytest.raises(AlbertError, match="None of the examples to train on has a label"):
        with_labels([])
    with pytest.raises(AlbertError, match=r"training examples \(2\) all have the label 'x'"):
        label_set(with_each("x", "x"))
