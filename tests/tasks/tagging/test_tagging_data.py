# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading words with tags: columns, rows, characters; entities of all schemes, and their scores."""

from __future__ import annotations

import gzip
import json

import pytest
import tensorflow as tf  # noqa: F401  (two logical CPUs are made where it is imported)

from albert_tf.errors import AlbertError
from albert_tf.tasks.tables import with_labels
from albert_tf.tasks.tagging.data import TaggingSpec, entities, read_tagged, tagged_texts
from albert_tf.tasks.tagging.task import tagging_metrics
from albert_tf.tasks.tagging.words import split_words

COLUMNS = """-DOCSTART- -X- -X- O

U.N. NNP I-NP B-ORG
official NN I-NP O

-DOCSTART- -X- -X- O
Ekeus\tNNP\tI-NP\tB-PER
New York\tNNP\tI-NP\tB-LOC
"""
ENTITY = {"start": 0, "end": 6, "label": "LOC"}


def tags(*rows):
    return [example.tags for example in tagged_texts((f"row {i}", x) for i, x in enumerate(rows))]


def words_of(example):
    return [example.text[start:end] for start, end in example.words]


@pytest.mark.parametrize("name", ["train.txt", "train.tsv", "train.conll.gz"])
def test_columns_hold_a_word_first_and_its_tag_last(name, tmp_path):
    path, content = tmp_path / name, COLUMNS.encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    first, second = read_tagged(str(path))
    assert (words_of(first), first.tags) == (["U.N.", "official"], ("B-ORG", "O"))
    assert (words_of(second), second.tags) == (["Ekeus", "New York"], ("B-PER", "B-LOC"))
    assert (first.where, second.where) == (f"{path}:3", f"{path}:7")


def test_rows_hold_words_or_texts_with_entities(tmp_path):
    path = tmp_path / "train.jsonl"
    rows = [
        {"tokens": ["in", "Oslo"], "tags": ["O", "B-LOC"]},
        {"text": "Ada, of  New-York.", "entities": [
            {"start": 9, "end": 17, "label": "LOC"}, {"start": 0, "end": 3, "label": "PER"},
        ]},
        {"text": "Ada", "entities": []},
        {"tokens": ["a"]},
        {"text": "Ada"},
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given, found, empty, *unknown = read_tagged(path)
    assert (given.text, given.words, given.tags) == ("in Oslo", ((0, 2), (3, 7)), ("O", "B-LOC"))
    assert words_of(found) == ["Ada", ",", "of", "New", "-", "York", "."]
    assert found.tags == ("B-PER", "O", "O", "B-LOC", "I-LOC", "I-LOC", "O")
    assert empty.tags == ("O",) and [example.tags for example in unknown] == [None, None]
    assert with_labels([given, *unknown, empty]) == [given, empty]


def test_a_word_is_cut_where_an_entity_ends_inside_of_it():
    (example,) = tagged_texts([("row", {"text": "Londoners", "entities": [ENTITY]})])
    assert (words_of(example), example.tags) == (["London", "ers"], ("B-LOC", "O"))


def test_words_are_separated_by_spaces_and_symbols():
    texts = ["Ada's\t1,5 €\u00a0x_y", "", " \0 ", "子曰a", "e\u0301t\u00e9"]
    found = [[text[a:b] for a, b in row] for text, row in zip(texts, split_words(texts))]
    assert found == [
        ["Ada", "'", "s", "1", ",", "5", "€", "x", "_", "y"], [], [], ["子", "曰", "a"], [texts[4]],
    ]  # fmt: skip


def test_iob1_becomes_iob2_and_other_tags_stay():
    iob1 = ["I-A", "I-A", "B-A", "O", "I-A", "I-B"]
    rows = {"tokens": ["w"] * 6, "tags": iob1}, {"tokens": ["w"], "tags": ["O"]}
    assert tags(*rows) == [("B-A", "I-A", "B-A", "O", "B-A", "B-B"), ("O",)]
    for others in (["B-A", "I-A", "O", "I-A"], ["I-A", "E-A", "S-B"], ["I-A", "NOUN", "O"]):
        assert tags({"tokens": ["w"] * len(others), "tags": others}) == [tuple(others)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"words": ["a"]}, "row 0: there are no tokens and no text, but words."),
        ({"tokens": "ab", "tags": []}, "The tokens of row 0 must be a list of strings"),
        ({"tokens": ["a"], "tags": [3]}, "of the tags of row 0 must be a string, not 3"),
        ({"tokens": ["a", "b"], "tags": ["O"]}, "row 0: there are 2 words, but 1 tags."),
        ({"text": "London", "entities": [ENTITY, ENTITY]}, "row 0: the entities must be objects"),
        ({"text": "Lon", "entities": [ENTITY]}, "must not overlap"),
        ({"text": "      ", "entities": [ENTITY]}, "characters of the text with a word or more"),
        ({"text": "London", "entities": [{**ENTITY, "label": 1}]}, "row 0: the entities must be"),
        ({"text": "London", "entities": ["LOC"]}, "row 0: the entities must be objects"),
    ],
)
def test_malformed_rows_are_named(row, message):
    with pytest.raises(AlbertError, match=message):
        tags(row)


def test_a_word_without_a_tag_among_others_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("a O\nb\n")
    with pytest.raises(AlbertError, match=r"tags of .*a\.txt:1 must be a string, not None"):
        read_tagged(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("\n-DOCSTART-\n")
    with pytest.raises(AlbertError, match=r"a\.txt holds no examples"):
        read_tagged(tmp_path / "a.txt")


#: Tags; the entities that conlleval finds, and those of seqeval's strict mode.
IOB2 = TaggingSpec(("B-A", "B-B", "I-A", "I-B", "O"))
BIOES = TaggingSpec(("B-A", "E-A", "I-A", "O", "S-A"))
CASES = [
    (IOB2, "B-A I-A O B-A", {(0, 2, "A"), (3, 4, "A")}, {(0, 2, "A"), (3, 4, "A")}),
    (IOB2, "I-A B-A I-B", {(0, 1, "A"), (1, 2, "A"), (2, 3, "B")}, {(1, 2, "A")}),
    (IOB2, "O I-A I-A", {(1, 3, "A")}, set()),
    (BIOES, "B-A I-A E-A S-A", {(0, 3, "A"), (3, 4, "A")}, {(0, 3, "A"), (3, 4, "A")}),
    (BIOES, "B-A I-A O E-A I-A", {(0, 2, "A"), (3, 4, "A"), (4, 5, "A")}, set()),
    (TaggingSpec(("B", "NN", "O")), "NN NN O B", {(0, 1, "NN"), (1, 2, "NN"), (3, 4, "B")}, None),
]


@pytest.mark.parametrize(("spec", "row", "found", "strict"), CASES)
def test_entities_are_those_of_conlleval_and_of_seqeval(spec, row, found, strict):
    assert entities(row.split(), spec) == found
    assert entities(row.split(), spec, spec.strict_form) == (found if strict is None else strict)


def test_scores_are_counted_by_hand():
    gold = [["B-A", "I-A", "O", "B-B", "O"], ["B-A", "O"]]
    found = [["B-A", "I-A", "O", "B-A", "O"], ["I-A", "I-A"]]
    scores = tagging_metrics(gold, found, IOB2)
    # conlleval: one of three found, of three gold ones; strict: one of two found.
    expected = {"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "accuracy": 4 / 7}
    expected |= {"A_precision": 1 / 3, "A_recall": 1 / 2, "A_f1": 2 / 5}
    expected |= {"B_precision": 0, "B_recall": 0, "B_f1": 0}
    expected |= {"strict_precision": 1 / 2, "strict_recall": 1 / 3, "strict_f1": 2 / 5}
    assert scores == pytest.approx(expected)
    assert tagging_metrics([()], [()], IOB2)["f1"] == 0
