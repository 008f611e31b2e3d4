# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import zipfile

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.glue import submission as glue_command
from albert_tf.tasks.glue.submission import TEST_SETS, make_submission
from albert_tf.tasks.tables import write_predictions

FILES = {
    "CoLA.tsv": 1063, "SST-2.tsv": 1821, "MRPC.tsv": 1725, "STS-B.tsv": 1379, "QQP.tsv": 390965,
    "MNLI-m.tsv": 9796, "MNLI-mm.tsv": 9847, "AX.tsv": 1104, "QNLI.tsv": 5463, "RTE.tsv": 3000,
    "WNLI.tsv": 146,
}  # fmt: skip


def write_run(run_dir, file, outputs):
    """Writes a run's predictions: probabilities [n, labels] or values [n]."""
    path = run_dir / "predictions" / file
    ids = map(str, range(len(outputs)))
    write_predictions(str(path), {"id": ids}, outputs, TEST_SETS[file][0].labels)
    return path


def random_probabilities(file, seed):
    task, split = TEST_SETS[file]
    return np.random.default_rng(seed).dirichlet(np.ones(len(task.labels)), split.rows)


def answers(output, file):
    lines = zipfile.ZipFile(output).read(file).decode().splitlines()
    assert lines[0] == "index\tprediction"
    ids, values = zip(*(line.split("\t") for line in lines[1:]))
    assert list(ids) == [str(i) for i in range(len(ids))]
    return list(values)


def test_a_submission_has_the_files_of_the_leaderboard():
    assert {file: split.rows for file, (_, split) in TEST_SETS.items()} == FILES


@pytest.fixture
def few(monkeypatch):
    """A server that wants three of the files."""
    wanted = ("STS-B.tsv", "RTE.tsv", "WNLI.tsv")
    monkeypatch.setattr(glue_command, "TEST_SETS", {file: TEST_SETS[file] for file in wanted})


def test_runs_go_into_one_complete_zip(few, tmp_path):
    rte, wnli = random_probabilities("RTE.tsv", 0), random_probabilities("WNLI.tsv", 0)
    values = np.random.default_rng(0).uniform(-1, 6, 1379).round(6)
    write_run(tmp_path / "run/rte", "RTE.tsv", rte)
    write_run(tmp_path / "run/sts-b", "STS-B.tsv", values)
    output = tmp_path / "out/submission.zip"
    runs = [str(tmp_path / "run"), str(tmp_path / "single")]
    (tmp_path / "single").mkdir()
    with pytest.raises(AlbertError, match=r"no predictions for WNLI\.tsv in .* albert classify"):
        make_submission(runs, str(output))
    assert not output.exists()

    predictions = write_run(tmp_path / "single", "WNLI.tsv", wnli)
    make_submission(runs, str(output))
    assert zipfile.ZipFile(output).namelist() == ["STS-B.tsv", "RTE.tsv", "WNLI.tsv"]
    labels = np.array(["entailment", "not_entailment"])
    assert answers(output, "RTE.tsv") == list(labels[rte.argmax(1)])
    assert answers(output, "STS-B.tsv") == [f"{value:.3f}" for value in values.clip(0, 5)]
    assert answers(output, "WNLI.tsv") == [str(i) for i in wnli.argmax(1)]
    before = output.read_bytes(), predictions.read_text()
    with pytest.raises(AlbertError, match=r"submission\.zip already exists; give"):
        make_submission(runs, str(output))
    with pytest.raises(AlbertError, match=r"WNLI\.tsv is also an input"):
        make_submission(runs, str(predictions), overwrite=True)
    make_submission(runs, str(output), overwrite=True)
    assert (output.read_bytes(), predictions.read_text()) == before  # Byte for byte.
    write_run(tmp_path / "run2/rte", "RTE.tsv", rte)
    with pytest.raises(AlbertError, match="predict the same test set; give one of the"):
        make_submission([*runs, str(tmp_path / "run2")], str(output), overwrite=True)


@pytest.mark.parametrize(
    ("rows", "changed", "message"),
    [
        (145, {}, "as GLUE distributes it: 146 rows, numbered from 0"),
        (146, {1: "1\t0\t0.5\t0.5"}, "predictions for WNLI/test.tsv as GLUE distributes it"),
        (146, {0: "id\tprediction\tno\tyes"}, " has no predictions for WNLI"),
        (146, {4: "3\t0\tnan\t0.5"}, ":5: the prediction is damaged"),
    ],
)
def test_bad_predictions_are_refused_with_their_place(
    rows, changed, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(glue_command, "TEST_SETS", {"WNLI.tsv": TEST_SETS["WNLI.tsv"]})
    path = write_run(tmp_path, "WNLI.tsv", random_probabilities("WNLI.tsv", 0)[:rows])
    lines = path.read_text().splitlines()
    for number, line in changed.items():
        lines[number] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(AlbertError) as error:
        make_submission([str(tmp_path)], str(tmp_path / "out.zip"))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert not (tmp_path / "out.zip").exists()
