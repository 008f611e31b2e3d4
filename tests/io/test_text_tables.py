# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import data_rows

ROWS = [{"text": "a b", "label": 1}, {"text": "c", "label": 0}]


class Frame:
    """Has the methods of a pandas.DataFrame that we call."""

    columns = ("text", "label")

    def __iter__(self):
        return iter(self.columns)

    def itertuples(self):
        raise NotImplementedError

    def to_dict(self, orient):
        assert orient == "records"
        return ROWS


class RepeatingFrame(Frame):
    columns = ("text", "text")


class HubDataset:
    """Iterates as a datasets.Dataset does, and describes its labels."""

    def __init__(self, label):
        self.features, self.rows = {"text": object(), "label": label}, ROWS

    def __iter__(self):
        return iter(self.rows)


def test_all_kinds_of_data_give_the_same_rows():
    columns = {"text": ["a b", "c"], "label": [1, 0]}
    kinds = (
        ROWS,
        iter(ROWS),
        columns,
        {"text": np.array(["a b", "c"]), "label": np.array([1, 0])},
        [{**ROWS[0], "label": np.int64(1)}, {"text": tf.constant("c"), "label": tf.constant(0)}],
        Frame(),
        HubDataset(label=object()),
        tf.data.Dataset.from_tensor_slices(columns),
        tf.data.Dataset.from_tensor_slices(columns).batch(2),
        types.SimpleNamespace(to_dicts=lambda: ROWS),  # Polars.
    )
    for data in kinds:
        places = ("train row 0", "train row 1")
        assert list(data_rows(data, "train")) == [*zip(places, ROWS)], data


def test_nested_values_become_lists_and_texts():
    row = {"answers": {"text": np.array([b"x", b"y"], object), "start": np.array([1, 2])}, 3: None}
    [(_, found)] = data_rows([row], "eval")
    assert found == {"answers": {"text": ["x", "y"], "start": [1, 2]}, "3": None}
    [(_, found)] = data_rows([{"score": float("nan")}], "eval")
    assert found == {"score": None}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "The train data must be a path, a list of dicts, .* not 3"),
        (b"x", "The train data must be a path"),
        (None, "not None"),
        (["a"], "train row 0 must be a dict of columns, not 'a'"),
        ({"text": ["a", "b"], "label": ["x"]}, "its values are not columns of one length"),
        ({"text": 3}, "its values are not columns of one length"),
        ({"train": "a.tsv", "test": "b.tsv"}, "its values are not columns"),
        ({"train": HubDataset(None), "test": Frame()}, "has the parts train, test; give one of"),
        ({"text": {"a", "b"}, "label": {"x", "y"}}, "its values are not columns"),
        ([{"1": "a", 1: "b"}], "train row 0: a column appears more than once among 1, 1"),
        (RepeatingFrame(), "The train data: a column appears more than once among text, text"),
        ([{"text": b"\xff"}], "train row 0: the text b'.xff' is not UTF-8"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(AlbertError, match=message):
        list(data_rows(data, "train"))
