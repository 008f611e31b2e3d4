# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading texts, pairs, triplets and scored pairs."""

import numpy as np
import pytest
import tensorflow as tf  # noqa: F401  (two logical CPUs are made where it is imported)

from albert_tf.errors import AlbertError
from albert_tf.tasks.embedding.data import read_embedding


def texts_of(data):
    return [example.texts for example in read_embedding(data, "train")]


def test_lines_of_a_file_and_items_of_a_list_are_texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a ship\n\n sea, tab\t\n", "utf-8")
    assert texts_of(path) == [("a ship",), (" sea, tab\t",)]
    for texts in (["a ship", "b"], np.array(["a ship", "b"])):
        assert texts_of(texts) == [("a ship",), ("b",)]
    assert read_embedding(path)[1].where == f"{path}:3"


@pytest.mark.parametrize(
    "names",
    [
        ("text", "text_pair"),
        ("anchor", "positive"),
        ("query", "passage"),
        ("sentence1", "sentence2"),
    ],
)
def test_columns_have_the_names_of_data_sets_for_vectors(names):
    row = dict(zip(names, ("a", "b")))
    assert texts_of([row, {**row, "negative": None}]) == [("a", "b")] * 2
    assert texts_of([{**row, "negative": "c"}]) == [("a", "b", "c")]
    scored = read_embedding([{**row, "score": "4.5"}, {**row, "score": 1}], "train")
    assert [example.score for example in scored] == [4.5, 1.0]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"title": "a"}], "row 0: there is no value in a column 'text'"),
        ([{"text": "a", "negative": "b"}], "row 0: there is no value in a column 'text_pair'"),
        ([{"text": "a"}, {"text": "a", "text_pair": "b"}], "must all be texts, pairs"),
        ([{"text": "a", "text_pair": "b", "score": "much"}], "the score 'much' is not a number"),
        ([{"text": "a", "text_pair": "b", "score": 1e39}], "is not a number"),
        ([{"text": "a", "text_pair": "b", "score": None}], "the score None is not a number"),
        ([{"text": "a", "score": 1}], "a score is of two texts, not of 1"),
        ([{"text": 3}], "row 0: the text must be a string"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, fault):
    with pytest.raises(AlbertError, match=fault):
        read_embedding(rows, "train")
