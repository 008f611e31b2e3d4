# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import zipfile

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.glue import submission as glue_command
from albert_tf.tasks.glue.submission import make_submission, server_answers, submission_files
from albert_tf.tasks.glue.tasks import find_glue_task
from albert_tf.tasks.prediction_tables import write_predictions

FILES = {
    "CoLA.tsv": 1063, "SST-2.tsv": 1821, "MRPC.tsv": 1725, "STS-B.tsv": 1379, "QQP.tsv": 390965,
    "MNLI-m.tsv": 9796, "MNLI-mm.tsv": 9847, "QNLI.tsv": 5463, "RTE.tsv": 3000, "WNLI.tsv": 146,
    "AX.tsv": 1104,
}  # fmt: skip
#: Task and test set by the file that the server expects.
TEST_SETS = {split.submission: (task, split) for task, split in submission_files()}


def write_run(run_dir, file, outputs):
    """Writes a run's predictions: probabilities [n, labels] or values [n]."""
    path = run_dir / "predictions" / file
    ids = map(str, range(len(outputs)))
    write_predictions(str(path), ids, outputs, TEST_SETS[file][0].labels)
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
    assert {split.submission: split.rows for _, split in submission_files()} == FILES


def test_answers_have_the_format_of_the_server():
    probabilities = np.array([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    assert server_answers(find_glue_task("mnli"), probabilities) == ["entailment", "neutral"]
    assert server_answers(find_glue_task("ax"), probabilities) == ["entailment", "neutral"]
    assert server_answers(find_glue_task("rte"), probabilities[:, :2]) == ["not_entailment"] * 2
    assert server_answers(find_glue_task("cola"), np.array([[0.9, 0.1]])) == ["0"]
    values = np.array([-0.3, 2.34567, 7.0])
    assert server_answers(find_glue_task("sts-b"), values) == ["0.000", "2.346", "5.000"]


def test_runs_go_into_one_complete_zip(tmp_path, run_script):
    """RTE, STS-B and WNLI are there; the rest is missing."""
    rte, wnli = random_probabilities("RTE.tsv", 0), random_probabilities("WNLI.tsv", 0)
    values = np.random.default_rng(0).uniform(0, 5, 1379).round(6)
    write_run(tmp_path / "run/rte", "RTE.tsv", rte)
    write_run(tmp_path / "run/sts-b", "STS-B.tsv", values)
    write_run(tmp_path / "single", "WNLI.tsv", wnli)
    output = tmp_path / "out/submission.zip"
    flags = [f"--run_dirs={tmp_path}/run*,{tmp_path}/single", f"--output={output}"]
    done = run_script(glue_command, *flags)
    assert done.returncode == 1
    assert "no predictions for CoLA.tsv, SST-2.tsv, MRPC.tsv, QQP.tsv, MNLI-m.tsv," in done.stderr
    assert not output.exists()

    done = run_script(glue_command, *flags, "--allow_missing")
    assert done.returncode == 0, done.stderr
    assert {n: len(answers(output, n)) for n in zipfile.ZipFile(output).namelist()} == FILES
    labels = np.array(["entailment", "not_entailment"])
    assert answers(output, "RTE.tsv") == list(labels[rte.argmax(1)])
    assert answers(output, "STS-B.tsv") == [f"{value:.3f}" for value in values]
    assert answers(output, "WNLI.tsv") == [str(i) for i in wnli.argmax(1)]
    assert set(answers(output, "MNLI-mm.tsv")) == {"contradiction"}
    assert set(answers(output, "QQP.tsv")) == {"0"}
    printed = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert f"3,000 answers, {tmp_path}/run/rte" in printed["RTE.tsv"]
    assert "always 0, as there are no predictions" in printed["QQP.tsv"]
    write_run(tmp_path / "run2/rte", "RTE.tsv", rte)
    done = run_script(glue_command, *flags, "--allow_missing", "--overwrite")
    assert done.returncode == 1 and "predict the same test set; give one of the" in done.stderr


def test_an_existing_archive_is_kept_without_overwrite(tmp_path, run_script):
    write_run(tmp_path / "run", "WNLI.tsv", random_probabilities("WNLI.tsv", 0))
    predictions = tmp_path / "run/predictions/WNLI.tsv"
    before = predictions.read_text()
    (tmp_path / "out.zip").write_text("kept")

    def make(output, *flags):
        given = f"--run_dirs={tmp_path}/run", f"--output={output}", "--allow_missing"
        return run_script(glue_command, *given, *flags)

    done = make(tmp_path / "out.zip")
    assert done.returncode == 1 and "out.zip already exists; give" in done.stderr
    assert (tmp_path / "out.zip").read_text() == "kept"
    done = make(predictions, "--overwrite")
    assert done.returncode == 1 and "WNLI.tsv is also an input" in done.stderr
    assert predictions.read_text() == before
    assert make(tmp_path / "out.zip", "--overwrite").returncode == 0
    assert len(answers(tmp_path / "out.zip", "WNLI.tsv")) == FILES["WNLI.tsv"]


def test_equal_predictions_give_equal_files(tmp_path):
    write_run(tmp_path / "run", "WNLI.tsv", random_probabilities("WNLI.tsv", 0))
    for name in ("a.zip", "b.zip"):
        make_submission([str(tmp_path / "run")], str(tmp_path / name), allow_missing=True)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.mark.parametrize(
    ("rows", "changed", "message"),
    [
        (145, {}, "other rows (145) than the server expects (146, numbered from 0)"),
        (146, {1: "1\t0\t0.5\t0.5"}, "predict WNLI/test.tsv as GLUE distributes it"),
        (146, {0: "id\tprediction\tno\tyes"}, ": these are not predictions for WNLI"),
        (146, {4: "3\t0\tnan\t0.5"}, ":5: the prediction is not probabilities"),
    ],
)
def test_bad_predictions_are_refused_with_their_place(rows, changed, message, tmp_path):
    path = write_run(tmp_path, "WNLI.tsv", random_probabilities("WNLI.tsv", 0)[:rows])
    lines = path.read_text().splitlines()
    for number, line in changed.items():
        lines[number] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(AlbertError) as error:
        make_submission([str(tmp_path)], str(tmp_path / "out.zip"), allow_missing=True)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert not (tmp_path / "out.zip").exists()


def test_a_folder_without_predictions_is_refused(tmp_path):
    with pytest.raises(AlbertError, match="holds no predictions of GLUE test sets"):
        make_submission([str(tmp_path)], str(tmp_path / "out.zip"), allow_missing=True)
