# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.prediction_tables import read_predictions, write_predictions

LABELS = ("no", "yes")


def test_tabs_and_line_ends_in_ids_do_not_break_the_table(tmp_path):
    path = tmp_path / "predictions.tsv"
    write_predictions(str(path), ["a\tb\n c"], np.array([[0.25, 0.75]]), LABELS)
    assert path.read_text() == "id\tprediction\tno\tyes\na b c\tyes\t0.250000\t0.750000\n"
    write_predictions(str(path), ["a\tb\n c"], np.array([1.5]), ())
    assert path.read_text() == "id\tprediction\na b c\t1.500000\n"


@pytest.mark.parametrize("labels", [LABELS, (), ("two\twords", "one")])
def test_predictions_are_read_back(labels, tmp_path):
    path, ids = str(tmp_path / "predictions.tsv"), ["a\tb", "c"]
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.ones(2), 2) if labels else rng.normal(size=2)
    write_predictions(path, ids, values, labels)
    found = read_predictions(path, ids, labels, "these", "advice")
    np.testing.assert_allclose(found, values, rtol=0, atol=5e-7)


NO_SUM = ":2: the prediction is not probabilities that sum to 1."


@pytest.mark.parametrize(
    ("rows", "ids", "message"),
    [
        (["a\t\t1\t0", "b\t\t1\t0"], ["a", "x"], ":3: the id is 'b' instead of 'x'; advice."),
        (["a\t\t1\t0", "b\t\t1\t0"], ["a"], " 2 predictions, but the set has 1 examples."),
        (["a\t\t1\t0"], ["a", "b"], " 1 predictions, but the set has 2 examples."),
        (["a\t\t1.0"], ["a"], ":2: 3 fields instead of 4."),
        (["a\t\tx\t1"], ["a"], ":2: a prediction is not a number."),
        (["a\t\tnan\t0.5"], ["a"], NO_SUM),
        (["a\t\t0.5\t0.6"], ["a"], NO_SUM),
        (["a\t\t-0.5\t1.5"], ["a"], NO_SUM),
    ],
)
def test_wrong_or_damaged_rows_are_refused(rows, ids, message, tmp_path):
    path = tmp_path / "predictions.tsv"
    path.write_text("\n".join(["id\tprediction\tno\tyes", *rows]) + "\n")
    with pytest.raises(AlbertError) as error:
        read_predictions(str(path), ids, LABELS, "the set", "advice")
    assert str(error.value).startswith(str(path)) and str(error.value).endswith(message)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS, ":1: these are not predictions for the set: the columns should be id, pred"),
        ((), ":2: the prediction is not a finite number"),
    ],
)
def test_other_columns_and_infinite_values_are_refused(labels, message, tmp_path):
    path = tmp_path / "predictions.tsv"
    path.write_text("id\tprediction\na\tinf\n")
    with pytest.raises(AlbertError, match=message):
        read_predictions(str(path), ["a"], labels, "the set", "advice")
