# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The mean of several runs' predictions."""

import json

import numpy as np
import pytest

from albert_tf.tasks import ensemble as command
from albert_tf.tasks.ensemble import average_answers
from albert_tf.tasks.squad.data import Answers, read_answers, write_answers
from albert_tf.tasks.tables import read_predictions, write_predictions


@pytest.fixture
def make(tmp_path, run_script):
    """Runs the command on runs/*, as `make(*flags)`."""

    def make(*flags, output_dir=tmp_path / "out"):
        return run_script(
            command, f"--run_dirs={tmp_path}/runs/*", f"--output_dir={output_dir}", *flags
        )

    return make


def answer(text, probability, start=0):
    return {"text": text, "probability": probability, "start": start, "end": start + len(text)}


def texts(nbest):
    return [(entry["text"], pytest.approx(entry["probability"])) for entry in nbest]


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
    done = make()
    assert done.returncode == 0, done.stderr
    names = "predictions.tsv, sts-b/predictions/STS-B.tsv"
    assert f"The mean of 2 runs is in {tmp_path}/out: {names}." in done.stdout
    found = read_predictions(str(tmp_path / "out/predictions.tsv"))
    assert found.columns == {"id": ("x y", "1", "2")} and found.labels == ["n", "y"]
    np.testing.assert_allclose(found.values, rte.mean(0), atol=1e-6)
    found = read_predictions(str(tmp_path / "out/sts-b/predictions/STS-B.tsv"))
    np.testing.assert_allclose(found.values, values.mean(0), atol=1e-6)
    done = make()
    assert done.returncode == 1 and "predictions.tsv already exists" in done.stderr
    assert make("--overwrite").returncode == 0


def test_answers_have_the_place_of_the_surest_run(tmp_path):
    members = [
        [answer("a", 0.9), answer("b", 0.1, 2)],
        [answer("b", 0.6, 8), answer("c", 0.4)],
        [answer("b", 0.5, 2), answer("c", 0.3), answer("d", 0.2)],
    ]
    folders = [str(tmp_path / name) for name in "abc"]
    for folder, nbest in zip(folders, members):
        write_answers(folder, Answers({"q": nbest}), None)
    average_answers(folders, str(tmp_path / "out"), 0.0)
    mean = read_answers(str(tmp_path / "out"))
    (best, *_) = nbest = mean.nbest["q"]
    assert texts(nbest) == [("b", 0.4), ("a", 0.3), ("c", 0.7 / 3)]
    assert (best["start"], best["end"]) == (8, 9) and mean.null_odds == {}


@pytest.fixture
def squad_runs(tmp_path):
    """Two runs on 2.0: the second is surer of q1; together they are undecided about q2."""

    def write(name, q1, q2, odds):
        write_answers(str(tmp_path / "runs" / name), Answers({"q1": q1, "q2": q2}, odds), 0.0)

    write("a", [answer("one", 0.6), answer("two", 0.4, 4)], [answer("one", 1.0)],
          {"q1": -4.0, "q2": 3.0})  # fmt: skip
    write("b", [answer("two", 0.9, 4), answer("one", 0.1)], [answer("two", 1.0, 4)],
          {"q1": 1.0, "q2": -1.0})  # fmt: skip
    return tmp_path / "runs"


def test_questions_of_2_0_are_left_unanswered_above_the_threshold(make, squad_runs, tmp_path):
    done = make()
    assert done.returncode == 0, done.stderr
    read = lambda name: json.loads((tmp_path / "out" / name).read_text())  # noqa: E731
    assert read("null_odds.json") == {"q1": -1.5, "q2": 1.0}
    assert read("predictions.json") == {"q1": "two", "q2": ""}
    assert texts(read("nbest_predictions.json")["q1"]) == [("two", 0.65), ("one", 0.35)]
    (tmp_path / "out/predictions.json").unlink()
    done = make()
    assert done.returncode == 1 and " already exists" in done.stderr
    assert make("--null_score_diff_threshold=-2", "--overwrite").returncode == 0
    assert read("predictions.json") == {"q1": "", "q2": ""}


def change_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("nbest_predictions.json", lambda c: c.pop("q2"), "answers to other questions than"),
        (
            "nbest_predictions.json",
            lambda c: c["q1"][0].pop("text"),
            "runs/b are damaged; predict",
        ),
        ("null_odds.json", lambda c: c.update(q1="1"), "runs/b are damaged; predict"),
    ],
)
def test_answers_to_other_questions_and_damaged_ones_are_refused(
    file, change, message, make, squad_runs, tmp_path
):
    change_json(squad_runs / "b" / file, change)
    done = make()
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_errors_are_one_sentence(make, tmp_path):
    for name, ids in (("a", "01"), ("b", "02")):
        path = str(tmp_path / "runs" / name / "predictions.tsv")
        write_predictions(path, {"id": ids}, np.full((2, 2), 0.5), ("n", "y"))
    before = (tmp_path / "runs/a/predictions.tsv").read_text()
    for output_dir, message in (
        (tmp_path / "out", "runs/b/predictions.tsv has other examples or labels than"),
        (tmp_path / "runs/a", "is among --run_dirs; give a folder that is not"),
    ):
        done = make(output_dir=output_dir)
        assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1
    assert (tmp_path / "runs/a/predictions.tsv").read_text() == before
    (tmp_path / "runs/b/predictions.tsv").unlink()
    assert "runs/a do not both have predictions.tsv." in make().stderr
    (tmp_path / "runs/a/predictions.tsv").unlink()
    assert "holds no predictions; --do_predict writes them" in make().stderr
