# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.prediction_tables import read_predictions, write_predictions

LABELS = ("no", "yes")


def test_predictions_file_keeps_its_columns_whatever_ids_hold(tmp_path):
    path = tmp_path / "predictions.tsv"
    write_predictions(str(path), ["a\tb\n c"], np.array([[0.25, 0.75]]), LABELS)
    assert path.read_text() == "id\tprediction\tno\tyes\na b c\tyes\t0.250000\t0.750000\n"
    write_predictions(str(path), ["a\tb\n c"], np.array([1.5]), ())
    assert path.read_text() == "id\tprediction\na b c\t1.500000\n"


@pytest.mark.parametrize("labels", [LABELS, (), ("two\twords", "one")])
def test_what_was_written_is_read_back(labels, tmp_path):
    path, ids = str(tmp_path / "predictions.tsv"), ["a\tb", "c"]
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.ones(2), 2) if labels else rng.normal(size=2)
    write_predictions(path, ids, values, labels)
    found = read_predictions(path, ids, labels, "these", "advice")
    np.testing.assert_allclose(found, values, rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "x"], ":3: the id is 'b' instead of 'x'; predict them again."),
        (["a"], "has 2 predictions, but the set has 1 examples."),
        (["a", "b", "c"], "has 2 predictions, but the set has 3 examples."),
    ],
)
def test_predictions_of_other_examples_are_refused(ids, message, tmp_path):
    path = str(tmp_path / "predictions.tsv")
    write_predictions(path, ["a", "b"], np.array([[0.5, 0.5], [1, 0]]), LABELS)
    with pytest.raises(AlbertError) as error:
        read_predictions(path, ids, LABELS, "the set", "predict them again")
    assert str(error.value).startswith(path) and message in str(error.value)
