# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m albert_tf.tasks.squad: its arguments, output and errors."""

import json

import pytest

from albert_tf.tasks.squad import __main__ as command
from tests.tasks.squad.conftest import TWO_KINDS


def write(tmp_path, name, value):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return path


def test_score_prints_the_official_keys_of_1_1(run_script, write_squad, tmp_path):
    predictions = write(tmp_path, "predictions.json", {"q1": "Two!", "q2": "one two"})
    result = run_script(command, "score", write_squad(), predictions, "--version=1.1")
    assert result.returncode == 0
    scores = json.loads(result.stdout)
    assert scores == {"exact_match": 50.0, "f1": pytest.approx(50 + 100 / 3)}


def test_score_of_2_0_takes_null_odds_and_a_threshold(run_script, write_squad, tmp_path):
    data = write_squad(qas=TWO_KINDS)
    predictions = write(tmp_path, "predictions.json", {"q1": "two", "q2": "one"})
    odds = f"--null_odds={write(tmp_path, 'odds.json', {'q1': 0.1, 'q2': 0.7})}"

    def scores(*options):
        result = run_script(command, "score", data, predictions, "--version=2.0", *options)
        return json.loads(result.stdout)

    assert scores()["exact"] == 50.0
    with_odds = scores(odds)
    assert with_odds["exact"] == 50.0
    assert (with_odds["best_exact"], with_odds["best_exact_thresh"]) == (100.0, 0.1)
    with_threshold = scores(odds, "--na_prob_thresh=0.5")
    assert (with_threshold["exact"], with_threshold["NoAns_exact"]) == (100.0, 100.0)


def test_inspect_prints_counts_lengths_and_alignment(run_script, write_squad, tmp_path, tokenizer):
    tokenizer.save(str(tmp_path))
    vocabulary = f"--spm_model_file={tmp_path / 'vocab.txt'}"
    data = write_squad(qas=TWO_KINDS)
    result = run_script(command, "inspect", f"--file={data}", "--version=2.0", vocabulary)
    assert json.loads(result.stdout) == {
        "questions": 2,
        "unanswerable": 1,
        "paragraphs": 1,
        "mean_paragraph_length": 3.0,
        "longest_paragraph": 3,
        "mean_question_length": 2.0,
        "windows": 2,
        "mean_window_length": 7.0,
        "answers": 1,
        "aligned_answers": 1.0,
        "exact_answers": 1.0,
    }
    data = write_squad(qas=[{"id": "q", "question": "?"}])
    result = run_script(command, "inspect", f"--file={data}", "--version=1.1", vocabulary)
    assert json.loads(result.stdout)["aligned_answers"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("score {data} --version=1.1", "error: PREDICTIONS.json is missing; see --help."),
        ("score {data} {list} --version=1.1", "list.json is not a JSON object"),
        ("score {data} {other} --version=1.1", "lack 2 of 2 questions, such as q1"),
        ("score {data} none.json --version=1.1", "prediction file none.json does not exist"),
        (
            "score {data} {other} --version=1.1 --null_odds={other}",
            "--null_odds is for --version=2.0",
        ),
        (
            "score {data} {other} --version=1.1 --na_prob_thresh=0.5",
            "--na_prob_thresh is a threshold on --null_odds, which is not given.",
        ),
        (
            "ensemble --file={data} --version=1.1 --null_score_diff_threshold=0 --run_dirs=. "
            "--output_dir=out",
            "--null_score_diff_threshold is for SQuAD 2.0; in 1.1 every question has an answer.",
        ),
        (
            "ensemble --file={data} --version=2.0 --null_score_diff_threshold=nan --run_dirs=. "
            "--output_dir=out",
            "--null_score_diff_threshold=nan is not a number.",
        ),
        ("sore", "error: the first argument must be score, inspect or ensemble."),
        ("", "error: the first argument must be score, inspect or ensemble."),
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
