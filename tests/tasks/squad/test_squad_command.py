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


def test_score_of_2_0_takes_null_odds(run_script, write_squad, tmp_path):
    data = write_squad(qas=TWO_KINDS)
    predictions = write(tmp_path, "predictions.json", {"q1": "two", "q2": "one"})
    odds = f"--null_odds={write(tmp_path, 'odds.json', {'q1': 0.1, 'q2': 0.7})}"

    result = run_script(command, data, predictions, odds)
    scores = json.loads(result.stdout)
    assert (scores["exact"], scores["best_exact"], scores["best_exact_thresh"]) == (
        50.0,
        100.0,
        0.1,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{data} {list}", "list.json is not a JSON object"),
        ("{data} {other}", "lack 2 of 2 questions, such as q1"),
        ("{data} {right} --null_odds={other}", "--null_odds is for SQuAD 2.0"),
    ],
)
def test_errors_are_one_sentence(
    run_script, write_squad, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    paths = {
        "data": write_squad(),
        "list": write(tmp_path, "list.json", ["two"]),
        "right": write(tmp_path, "right.json", {"q1": "two", "q2": "two"}),
        "other": write(tmp_path, "other.json", {"x": "two"}),
    }
    result = run_script(command, *arguments.format(**paths).split())
    assert result.returncode == 1
    assert message in result.stderr and result.stderr.count("\n") == 1
