# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The mean of several runs' predictions."""

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.ensemble import ensemble
from albert_tf.tasks.tables import read_predictions, write_predictions


@pytest.fixture
def make(tmp_path):
    """Averages the predictions of runs/*."""

    def make(output_dir=tmp_path / "out", **options):
        return ensemble(sorted(map(str, (tmp_path / "runs").iterdir())), str(output_dir), **options)

    return make


def test_tables_of_all_tasks_are_averaged(make, tmp_path):
    rng = np.random.default_rng(0)
    rte = rng.dirichlet(np.ones(2), (2, 3)).round(6)
    values = rng.uniform(0, 5, (2, 3)).round(6)
    for run, probabilities, numbers in zip("ab", rte, values):
        folder = tmp_path / "runs" / run
        names = ["x\ty", "1", "2"]
        ids = {"id": names}
        write_predictions(str(folder / "predictions.tsv"), ids, probabilities, ("n", "y"))
        write_predictions(str(folder / "sts-b/predictions/STS-B.tsv"), ids, numbers, ())
    assert make() == ["predictions.tsv", "sts-b/predictions/STS-B.tsv"]
    found = read_predictions(str(tmp_path / "out/predictions.tsv"))
    assert found.columns == {"id": ("x y", "1", "2")} and found.labels == ["n", "y"]
    np.testing.assert_allclose(found.values, rte.mean(0), atol=1e-6)
    found = read_predictions(str(tmp_path / "out/sts-b/predictions/STS-B.tsv"))
    np.testing.assert_allclose(found.values, values.mean(0), atol=1e-6)
    with pytest.raises(AlbertError, match=r"predictions\.tsv already exists"):
        make()
    make(overwrite=True)


def test_errors_are_one_sentence(make, tmp_path):
    for name, ids in (("a", "01"), ("b", "02")):
        path = str(tmp_path / "runs" / name / "predictions.tsv")
        write_predictions(path, {"id": ids}, np.full((2, 2), 0.5), ("n", "y"))
    before = (tmp_path / "runs/a/predictions.tsv").read_text()
    for output_dir, message in (
        (tmp_path / "out", "runs/b/predictions.tsv has other examples or labels than"),
        (tmp_path / "runs/a", "is among `run_dirs`; give a folder that is not"),
    ):
        with pytest.raises(AlbertError, match=message):
            make(output_dir)
    assert (tmp_path / "runs/a/predictions.tsv").read_text() == before
    (tmp_path / "runs/b/predictions.tsv").unlink()
    with pytest.raises(AlbertError, match=r"runs/a do not both have predictions\.tsv\."):
        make()
    (tmp_path / "runs/a/predictions.tsv").unlink()
    with pytest.raises(AlbertError, match="holds no predictions; --do_predict writes them"):
        make()
