# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from albert_tf.tasks.squad import __main__ as command
from albert_tf.tasks.squad.answer_files import write_answers
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.ensemble import average_answers
from tests.tasks.squad.conftest import TWO_KINDS


def answer(text, probability, start=0):
    return {"text": text, "probability": probability, "start": start, "end": start + len(text)}


def texts(nbest):
    return [(entry["text"], pytest.approx(entry["probability"])) for entry in nbest]


def test_probabilities_are_averaged_and_a_missing_text_counts_as_0():
    members = [
        Answers({"q": [answer("a", 0.9), answer("b", 0.1, 2)]}, {}),
        Answers({"q": [answer("b", 0.6, 8), answer("c", 0.4)]}, {}),
        Answers({"q": [answer("b", 0.5, 2), answer("c", 0.3), answer("d", 0.2)]}, {}),
    ]
    (mean,) = average_answers(members).nbest.values()
    assert texts(mean) == [("b", 0.4), ("a", 0.3), ("c", 0.7 / 3)]
    assert (mean[0]["start"], mean[0]["end"]) == (8, 9)  # Of the highest probability of "b".


def test_the_mean_of_one_model_has_its_answers():
    only = Answers({"q": [answer("a", 0.7), answer("b", 0.3)]}, {"q": -2.5})
    mean = average_answers([only])
    assert mean.nbest == only.nbest and mean.null_odds == only.null_odds


@pytest.fixture
def runs(tmp_path):
    """Two runs: the second is right about q1, and surer; together they are undecided about q2."""

    def write(name, q1, q2, odds):
        write_answers(str(tmp_path / name), Answers({"q1": q1, "q2": q2}, odds), 0.0)

    write("runs/a", [answer("one", 0.6), answer("two", 0.4, 4)], [answer("one", 1.0)],
          {"q1": -4.0, "q2": 3.0})  # fmt: skip
    write("runs/b", [answer("two", 0.9, 4), answer("one", 0.1)], [answer("two", 1.0, 4)],
          {"q1": 1.0, "q2": -1.0})  # fmt: skip
    return tmp_path / "runs"


@pytest.fixture
def ensemble(runs, run_script, write_squad, tmp_path):
    """Runs the command on these runs, as `ensemble(*flags)`."""

    def run(*flags, qas=TWO_KINDS, version="2.0", output_dir=tmp_path / "out"):
        given = f"--file={write_squad(qas=qas)}", f"--run_dirs={runs}/*", f"--version={version}"
        return run_script(command, "ensemble", *given, f"--output_dir={output_dir}", *flags)

    return run


def test_the_command_writes_and_scores_the_answers_of_2_0(ensemble, tmp_path):
    done = ensemble()
    assert done.returncode == 0, done.stderr
    assert "The mean answers of 2 runs are in" in done.stdout
    read = lambda name: json.loads((tmp_path / "out" / name).read_text())  # noqa: E731
    assert read("null_odds.json") == {"q1": -1.5, "q2": 1.0}
    results = read("eval_results.json")
    assert results["f1"] == results["exact"] == 100.0
    assert -1.5 < results["null_threshold"] < 1.0
    assert read("predictions.json") == {"q1": "two", "q2": ""}
    assert texts(read("nbest_predictions.json")["q1"]) == [("two", 0.65), ("one", 0.35)]
    low = ensemble("--null_score_diff_threshold=-2")
    assert low.returncode == 1 and "predictions.json already exists" in low.stderr
    assert read("predictions.json") == {"q1": "two", "q2": ""}
    low = ensemble("--null_score_diff_threshold=-2", "--overwrite")
    assert low.returncode == 0 and read("predictions.json") == {"q1": "", "q2": ""}


def test_1_1_needs_no_null_odds_and_no_gold_answers(ensemble, runs, tmp_path):
    for path in runs.glob("*/null_odds.json"):
        path.unlink()
    new = [{"id": name, "question": "?"} for name in ("q1", "q2")]
    done = ensemble(qas=new, version="1.1")
    assert done.returncode == 0, done.stderr
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["nbest_predictions.json", "predictions.json"]
    done = ensemble("--overwrite", qas=new)
    assert done.returncode == 1 and "give --null_score_diff_threshold" in done.stderr


def test_a_member_is_never_overwritten(ensemble, runs):
    before = (runs / "a/predictions.json").read_text()
    done = ensemble(output_dir=f"{runs}/a/")
    assert done.returncode == 1 and "is among --run_dirs; give a folder" in done.stderr
    assert (runs / "a/predictions.json").read_text() == before


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("nbest_predictions.json", lambda c: c.pop("q2"), "lacks question q2"),
        ("nbest_predictions.json", lambda c: c["q1"][0].pop("text"), "for question q1 is damaged"),
        ("nbest_predictions.json", lambda c: c.update(q1=[]), "for question q1 is damaged"),
        ("null_odds.json", lambda c: c.update(q1="1"), "for question q1 is damaged"),
    ],
)
def test_answers_to_other_questions_and_damaged_ones_are_refused(
    file, change, message, ensemble, runs, tmp_path
):
    path = runs / "b" / file
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    done = ensemble()
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert message in done.stderr and f"runs/b/{file}" in done.stderr
    assert done.stderr.count("\n") == 1
