# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.tables import read_predictions, write_predictions

LABELS = ("no", "yes")


def test_tabs_and_line_ends_in_ids_do_not_break_the_table(tmp_path):
    path = tmp_path / "predictions.tsv"
    write_predictions(str(path), {"id": ["a\tb\n c"]}, np.array([[0.25, 0.75]]), LABELS)
    assert path.read_text() == "id\tprediction\tno\tyes\na b c\tyes\t0.250000\t0.750000\n"
    columns = {"id": ["a\tb\n c"], "text": ["d\n\te"]}
    write_predictions(str(path), columns, np.array([1.5]), ())
    assert path.read_text() == "id\ttext\tprediction\na b c\td e\t1.500000\n"


@pytest.mark.parametrize("texts", [{}, {"text": ("x y", "")}, {"text": ("", "1"), "b": ("", "")}])
@pytest.mark.parametrize("labels", [LABELS, (0, 10), ("prediction", "text"), ()])
def test_predictions_are_read_back(labels, texts, tmp_path):
    path, columns = str(tmp_path / "predictions.tsv"), {"id": ("a b", "c"), **texts}
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.ones(2), 2) if labels else rng.normal(size=2)
    write_predictions(path, columns, values, labels)
    found = read_predictions(path)
    assert (found.columns, found.labels) == (columns, [*map(str, labels)])
    np.testing.assert_allclose(found.values, values, rtol=0, atol=5e-7)


NO_SUM = ":2: the prediction is damaged; it should be a number, or probabilities that sum to 1"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["id\ttext", "a\tb"], ":1: there are no predictions here; the columns should be id and"),
        (["id\tprediction\tno\tyes"], " has no predictions."),
        (["id\tprediction\tno\tyes", "a\t\t1.0"], NO_SUM),
        (["id\tprediction\tno\tyes", "a\t\tx\t1"], NO_SUM),
        (["id\tprediction\tno\tyes", "a\t\tnan\t0.5"], NO_SUM),
        (["id\tprediction\tno\tyes", "a\t\t0.5\t0.6"], NO_SUM),
        (["id\tprediction", "a\tinf"], NO_SUM),
    ],
)
def test_damaged_tables_are_refused(lines, message, tmp_path):
    path = tmp_path / "predictions.tsv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(AlbertError) as error:
        read_predictions(str(path))
    assert str(error.value).startswith(f"{path}{message}")
