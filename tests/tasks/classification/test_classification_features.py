# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.base import InputOptions
from albert_tf.tasks.classification.features import (
    build_records,
    empty_text_warning,
    featurize,
    label_set,
    label_values,
)
from tests.tasks.conftest import LETTERS


def example(text, pair=None, label="x", where="data.tsv:2"):
    return TextExample("0", text, pair, label, where)


def test_single_texts_and_pairs_are_joined_to_sequences(tokenizer):
    examples = [example("a b"), example("a", "b c"), example("a", ""), example("")]
    columns, lengths = featurize(tokenizer, examples, 8)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    a, b, c = (tokenizer.piece_to_id(letter) for letter in "abc")
    assert [row.tolist() for row in columns["input_ids"]] == [
        [cls, a, b, sep],
        [cls, a, sep, b, c, sep],
        [cls, a, sep],
        [cls, sep],
    ]
    np.testing.assert_array_equal(columns["row_lengths"][:, 0], [4, 6, 3, 2])
    np.testing.assert_array_equal(columns["first_lengths"][:, 0], [4, 3, 3, 2])
    np.testing.assert_array_equal(lengths, [4, 6, 3, 2])


def test_long_texts_are_cut_at_their_ends(tokenizer):
    examples = [example("a b c d e f g"), example("a b c d", "e f g h")]
    columns, lengths = featurize(tokenizer, examples, 6)
    pieces = [[tokenizer.id_to_piece(i) for i in row] for row in columns["input_ids"]]
    assert pieces[0] == ["[CLS]", "a", "b", "c", "d", "[SEP]"]
    assert pieces[1] == ["[CLS]", "a", "b", "[SEP]", "e", "[SEP]"]
    np.testing.assert_array_equal(lengths, [9, 11])


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


def build(folder, tokenizer, examples, length=8, labels=("x", "y"), **options):
    options = InputOptions(str(folder), **options)
    return build_records(examples, tokenizer, length, labels, options)


def read(path, length=8, dtype="int64"):
    features = records.sequence_features(label_ids=records.FeatureSpec(dtype))
    batch = records.parse_sequences(list(records.read_examples(path)), features, length)
    return {name: value.numpy() for name, value in batch.items()}


def test_records_have_the_features_and_a_manifest_with_statistics(tmp_path, tokenizer):
    examples = [example("a", "b", "y"), example("a b c d e f g", None, "x"), example("c")]
    path = build(tmp_path, tokenizer, examples)
    columns, _ = featurize(tokenizer, examples, 8)
    batch = read(path)
    for row, ids in zip(batch["input_word_ids"], columns["input_ids"]):
        np.testing.assert_array_equal(row, np.pad(ids, (0, 8 - len(ids))))
    np.testing.assert_array_equal(batch["input_type_ids"].sum(1), [2, 0, 0])
    np.testing.assert_array_equal(batch["label_ids"], [1, 0, 0])
    statistics = Manifest.load(str(pathlib.Path(path).parent)).statistics
    assert statistics["examples"] == 3
    assert statistics["longest"] == 9
    assert statistics["truncated"] == 1
    assert statistics["labels"] == {"x": 2, "y": 1}


@pytest.mark.parametrize(
    "labels",
    [("1", "0", "1.0"), ("true", "0", "1"), ("False", "1", "0.0"), ("yes", "TRUE", "true")],
)
def test_one_label_in_two_spellings_is_an_error_with_both_places(labels):
    examples = [
        example("a", label=label, where=f"data.jsonl:{i}") for i, label in enumerate(labels)
    ]
    with pytest.raises(AlbertError, match=r"data.jsonl:\d: the label .* is the same value as"):
        label_set(examples)


def test_similar_labels_are_different_classes():
    examples = [example("a", label=label) for label in ("1", "1.5", "-1", "nan", "true", "yes")]
    with pytest.raises(AlbertError, match=r"'true' is the same value as '1'"):
        label_set(examples)
    assert label_set(examples[:4]) == ("-1", "1", "1.5", "nan")


def test_empty_texts_are_counted_in_a_warning():
    empty = example(" \t", where="data.tsv:3")
    examples = [example("a"), empty, example("a", "b"), example("a", "")]
    warning = empty_text_warning(examples, "train")
    assert "2 of the 4 train examples have an empty text, the first at data.tsv:3" in warning
    assert not empty_text_warning(examples[::2], "train")


def test_records_are_reused_unless_an_input_has_changed(tmp_path, tokenizer):
    examples = [example("a", label="x"), example("b", label="y")]
    first = build(tmp_path, tokenizer, examples)
    before = pathlib.Path(first).stat().st_mtime_ns
    assert build(tmp_path, tokenizer, examples) == first
    assert pathlib.Path(first).stat().st_mtime_ns == before
    others = {
        build(tmp_path, tokenizer, examples, length=9),
        build(tmp_path, tokenizer, examples, labels=("x", "y", "z")),
        build(tmp_path, tokenizer, examples, train_seed=1),
        build(tmp_path, tokenizer, examples, labelled=False),
        build(tmp_path, tokenizer, [example("a"), example("c", label="y")]),
        build(tmp_path, tokenizer, [example("a"), example("b", label="x")]),
    }
    assert len(others | {first}) == 7


def test_incomplete_records_are_built_again(tmp_path, tokenizer):
    examples = [example("a", label="x"), example("b", label="y")]
    path = pathlib.Path(build(tmp_path, tokenizer, examples))
    path.with_name("manifest.json").unlink()
    path.write_bytes(b"half")
    assert build(tmp_path, tokenizer, examples) == str(path)
    assert len(read(str(path))["label_ids"]) == 2


def test_training_records_are_shuffled_and_none_is_lost(tmp_path, tokenizer):
    examples = [example(LETTERS[i % 10], label="x" if i < 500 else "y") for i in range(1000)]
    ordered = read(build(tmp_path, tokenizer, examples))["label_ids"]
    shuffled = read(build(tmp_path, tokenizer, examples, train_seed=3))["label_ids"]
    np.testing.assert_array_equal(ordered, [0] * 500 + [1] * 500)
    assert shuffled.sum() == 500
    assert 200 < shuffled[:500].sum() < 300


def test_unlabelled_texts_get_the_label_0(tmp_path, tokenizer):
    examples = [example("a", label=None), example("b", label=None)]
    path = build(tmp_path, tokenizer, examples, labels=(), labelled=False)
    np.testing.assert_array_equal(read(path, dtype="float32")["label_ids"], [0.0, 0.0])


def test_nothing_is_written_if_a_label_is_unknown(tmp_path, tokenizer):
    with pytest.raises(AlbertError, match="the label 'z' does not occur in the training data"):
        build(tmp_path, tokenizer, [example("a", label="z")])
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_has_tokenizer_and_options(tmp_path, tokenizer):
    path = build(tmp_path, tokenizer, [example("a"), example("b", label="y")], train_seed=5)
    manifest = json.loads(pathlib.Path(path).with_name("manifest.json").read_text())
    assert manifest["kind"] == "classification"
    assert manifest["tokenizer"] == tokenizer.spec.to_dict()
    assert manifest["options"]["shuffle_seed"] == 5
