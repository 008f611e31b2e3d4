# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m albert_tf.tasks.squad.scoring: its arguments, output and errors."""

import json

import pytest

from albert_tf.tasks.squad import scoring as command
from tests.tasks.squad.conftest import TWO_KINDS


def write(tmp_path, name, value):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return path


def test_score_prints_the_official_keys_of_1_1(run_script, write_squad, tmp_path):
    predictions = write(tmp_path, "predictions.json", {"q1": "Two!", "q2": "one two"})
    result = run_script(command, write_squad(), predictions, "--version=1.1")
    assert result.returncode == 0
    scores = json.loads(result.stdout)
    assert scores == {"exact_match": 50.0, "f1": pytest.approx(50 + 100 / 3)}


def test_score_of_2_0_takes_null_odds_and_a_threshold(run_script, write_squad, tmp_path):
    data = write_squad(qas=TWO_KINDS)
    predictions = write(tmp_path, "predictions.json", {"q1": "two", "q2": "one"})
    odds = f"--null_odds={write(tmp_path, 'odds.json', {'q1': 0.1, 'q2': 0.7})}"

    def scores(*options):
        result = run_script(command, data, predictions, "--version=2.0", *options)
        return json.loads(result.stdout)

    assert scores()["exact"] == 50.0
    with_odds = scores(odds)
    assert with_odds["exact"] == 50.0
    assert (with_odds["best_exact"], with_odds["best_exact_thresh"]) == (100.0, 0.1)
    with_threshold = scores(odds, "--na_prob_thresh=0.5")
    assert (with_threshold["exact"], with_threshold["NoAns_exact"]) == (100.0, 100.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{data} --version=1.1", "error: PREDICTIONS.json is missing; see --help."),
        ("{data} {list} --version=1.1", "list.json is not a JSON object"),
        ("{data} {other} --version=1.1", "lack 2 of 2 questions, such as q1"),
        ("{data} none.json --version=1.1", "prediction file none.json does not exist"),
        (
            "{data} {other} --version=1.1 --null_odds={other}",
            "--null_odds is for --version=2.0",
        ),
        (
            "{data} {other} --version=1.1 --na_prob_thresh=0.5",
            "--na_prob_thresh is a threshold on --null_odds, which is not given.",
        ),
    ],
)
def test_errors_are_one_sentence(
    run_script, write_squad, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    paths = {
        "data": write_squad(),
        "list": write(tmp_path, "list.json", ["two"]),
        "other": write(tmp_path, "other.json", {"x": "two"}),
    }
    result = run_script(command, *arguments.format(**paths).split())
    assert result.returncode == 1
    assert message in result.stderr and result.stderr.count("\n") == 1
