# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

import numpy as np
import pytest

from albert_tf.tasks.multiple_choice import __main__ as command
from albert_tf.tasks.multiple_choice.data import read_race
from albert_tf.tasks.multiple_choice.predictions import write_outputs


@pytest.fixture
def questions(race):
    """RACE with a test split, and its questions."""
    (race / "dev").rename(race / "test")
    return read_race(str(race), "test")


@pytest.fixture
def members(questions, tmp_path):
    """Probabilities of two runs that make different mistakes, and the flag of their folders."""
    labels = [question.label for question in questions]
    doubtful = np.full((2, len(labels), 4), 0.1)
    doubtful[:, range(len(labels)), labels] = 0.7
    doubtful[0, 0], doubtful[1, 1] = [0.45, 0.55, 0, 0], [0, 0.48, 0.52, 0]
    assert labels[:2] == [0, 1]
    for name, probabilities in zip("ab", doubtful):
        write_outputs(questions, probabilities, str(tmp_path / "runs" / name))
    return doubtful, f"--run_dirs={tmp_path}/runs/a,{tmp_path}/runs/b"


def test_the_mean_of_two_models_corrects_the_mistakes_of_each(members, race, run_script, tmp_path):
    probabilities, runs = members
    read = lambda folder, name: json.loads((tmp_path / folder / name).read_text())  # noqa: E731
    single = [read(f"runs/{name}", "predict_results.json")["accuracy"] for name in "ab"]
    assert single == [0.75, 0.75]
    given = f"--data_dir={race}", runs, f"--output_dir={tmp_path}/out"
    done = run_script(command, "ensemble", *given)
    assert done.returncode == 0, done.stderr
    results = read("out", "predict_results.json")
    assert results["accuracy"] == results["middle_accuracy"] == results["high_accuracy"] == 1.0
    rows = (tmp_path / "out/predictions.tsv").read_text().splitlines()[1:]
    found = np.array([[float(cell) for cell in row.split("\t")[2:]] for row in rows])
    np.testing.assert_allclose(found, probabilities.mean(axis=0), rtol=0, atol=1e-6)
    assert "mean of 2 runs" in done.stdout
    done = run_script(command, "ensemble", *given)
    assert done.returncode == 1 and "predictions.tsv already exists" in done.stderr


def test_results_of_former_predictions_do_not_stay(questions, tmp_path):
    probabilities = np.full((len(questions), 4), 0.25)
    write_outputs(questions, probabilities, str(tmp_path))
    assert (tmp_path / "predict_results.json").exists()
    unlabelled = [dataclasses.replace(question, label=None) for question in questions]
    write_outputs(unlabelled, probabilities, str(tmp_path))
    assert json.loads((tmp_path / "predict_results.json").read_text()) == {}


def test_predictions_for_unlabelled_json_lines_are_averaged(members, run_script, tmp_path):
    rows = [{"id": i, "question": "?", "options": ["a", "b"]} for i in range(2)]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = "id\tprediction\tA\tB\n0\tA\t{}\t{}\n1\tB\t0.2\t0.8\n"
    for name, values in (("c", (0.9, 0.1)), ("d", (0.3, 0.7))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "predictions.tsv").write_text(table.format(*values))
    done = run_script(
        command, "ensemble", f"--predict_file={tmp_path}/new.jsonl", "--num_choices=2",
        f"--run_dirs={tmp_path}/c,{tmp_path}/d", f"--output_dir={tmp_path}/out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = "id\tprediction\tA\tB\n0\tA\t0.600000\t0.400000\n1\tB\t0.200000\t0.800000\n"
    assert (tmp_path / "out/predictions.tsv").read_text() == expected
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["predictions.tsv"]


def test_errors_are_one_sentence(members, race, run_script, tmp_path):
    _, runs = members
    out = f"--output_dir={tmp_path}/out"
    done = run_script(command, "ensemble", runs, out)
    assert done.returncode == 1 and "Give the questions: --data_dir" in done.stderr
    done = run_script(
        command, "ensemble", f"--data_dir={race}", runs, f"--output_dir={tmp_path}/runs/b"
    )
    assert done.returncode == 1 and "is among --run_dirs" in done.stderr
    path = tmp_path / "runs/b/predictions.tsv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    done = run_script(command, "ensemble", f"--data_dir={race}", runs, out)
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert f"{path} has 3 predictions, but this set of questions has 4" in done.stderr
    assert done.stderr.count("\n") == 1
    done = run_script(command, "sample")
    assert done.returncode == 1 and "the first argument must be ensemble." in done.stderr
