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


@pytest.mark.parametrize(
    ("rows", "ids", "message"),
    [
        (
            ["a\tno\t0.5\t0.5", "b\tno\t1\t0"],
            ["a", "x"],
            ":3: the id is 'b' instead of 'x'; again.",
        ),
        (
            ["a\tno\t0.5\t0.5", "b\tno\t1\t0"],
            ["a"],
            "has 2 predictions, but the set has 1 examples.",
        ),
        (["a\tno\t0.5\t0.5"], ["a", "b"], "has 1 predictions, but the set has 2 examples."),
        (["a\tno\t1.0"], ["a"], ":2: 3 fields instead of 4."),
        (["a\tno\tx\t1"], ["a"], ":2: a prediction is not a number."),
        (["a\tno\tnan\t0.5"], ["a"], ":2: the prediction is not probabilities that sum to 1."),
        (["a\tno\t0.5\t0.6"], ["a"], ":2: the prediction is not probabilities that sum to 1."),
        (["a\tno\t-0.5\t1.5"], ["a"], ":2: the prediction is not probabilities that sum to 1."),
    ],
)
def test_wrong_or_damaged_rows_are_refused(rows, ids, message, tmp_path):
    path = tmp_path / "predictions.tsv"
    path.write_text("\n".join(["id\tprediction\tno\tyes", *rows]) + "\n")
    with pytest.raises(AlbertError) as error:
        read_predictions(str(path), ids, LABELS, "the set", "again")
    assert str(error.value).startswith(str(path)) and str(error.value).endswith(message)


def test_predictions_for_other_labels_and_infinite_values_are_refused(tmp_path):
    path = tmp_path / "predictions.tsv"
    for labels, message in (
        (
            LABELS,
            ":1: these are not predictions for the set: the columns should be id, prediction, no",
        ),
        ((), ":2: the prediction is not a finite number"),
    ):
        path.write_text("id\tprediction\na\tinf\n")
        with pytest.raises(AlbertError, match=message):
            read_predictions(str(path), ["a"], labels, "the set", "again")
