# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts and pairs as sequences, and their labels."""

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.task import (
    ClassificationSpec,
    TextClassificationTask,
    label_set,
    label_values,
)
from tests.tasks.conftest import CONFIG


def example(text, pair=None, label="x", where="data.tsv:2"):
    return TextExample("0", text, pair, label, where)


def encode(tokenizer, examples, length=8, labels=("x", "y"), **options):
    task = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(labels, length))
    data = task.encode(examples, **options)
    batch = data.source.batch(range(len(examples)), length)
    return {name: value.numpy() for name, value in batch.items()}, data.summary


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
    assert "; 2 are longer than 6 tokens and cut" in summary


def test_unlabelled_texts_get_the_label_0_and_others_must_be_known(tokenizer):
    batch, summary = encode(tokenizer, [example("a", label="z")], labelled=False)
    np.testing.assert_array_equal(batch["label_ids"], [0])
    assert "labels" not in summary
    with pytest.raises(AlbertError, match="the label 'z' does not occur in the training data"):
        encode(tokenizer, [example("a", label="z")])


def test_labels_are_sorted_and_become_their_index():
    examples = [example("", label=label) for label in ("b", "a", "c", "a")]
    assert label_set(examples) == ("a", "b", "c")
    np.testing.assert_array_equal(label_values(examples, ("a", "b", "c")), [1, 0, 2, 0])


def test_regression_labels_are_numbers():
    values = label_values([example("", label="2.5"), example("", label="-1e3")], ())
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, [2.5, -1000.0])


@pytest.mark.parametrize("label", ["", "good", "nan", "inf", "3.5e38", "-1e19", "9" * 400])
def test_regression_labels_that_are_not_numbers_are_refused(label):
    with pytest.raises(AlbertError, match=r"data\.tsv:2: the label .* is not a number from"):
        label_values([example("", label=label)], ())


def test_a_single_label_and_empty_labels_are_refused():
    with pytest.raises(AlbertError, match=r"training examples \(2\) all have the label 'x'"):
        label_set([example("a"), example("b")])
    with pytest.raises(AlbertError, match=r"data\.tsv:9: the label is empty"):
        label_set([example("a"), example("b", label="", where="data.tsv:9")])
