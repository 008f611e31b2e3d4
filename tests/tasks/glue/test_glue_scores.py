# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import pytest

from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.glue_tasks import find_task
from albert_tf.tasks.glue.scores import glue_average, majority_metrics, score_table, task_score

#: The published leaderboard row of BERT with 24 layers, whose average is 80.5.
BERT = {
    "cola": {"dev": {"matthews_corr": 0.605}},
    "sst-2": {"dev": {"accuracy": 0.949}},
    "mrpc": {"dev": {"f1": 0.893, "accuracy": 0.854}},
    "sts-b": {"dev": {"pearson": 0.876, "spearman": 0.865}},
    "qqp": {"dev": {"f1": 0.721, "accuracy": 0.893}},
    "mnli": {"dev_matched": {"accuracy": 0.867}, "dev_mismatched": {"accuracy": 0.859}},
    "qnli": {"dev": {"accuracy": 0.927}},
    "rte": {"dev": {"accuracy": 0.701}},
    "wnli": {"dev": {"accuracy": 0.651}},
}


def test_the_average_equals_that_of_the_leaderboard():
    scores = {name: task_score(find_task(name), results) for name, results in BERT.items()}
    assert scores["mrpc"] == pytest.approx(87.35)
    assert scores["mnli"] == pytest.approx(86.3)
    assert round(glue_average(scores), 1) == 80.5
    assert glue_average({**scores, "ax": 39.6}) == glue_average(scores)


def test_majority_answers_are_scored():
    def majority(name, *labels):
        examples = [TextExample(str(i), "a", None, label, "") for i, label in enumerate(labels)]
        return majority_metrics(find_task(name), examples)

    mrpc, qqp = (majority(name, "1", "1", "0", "1") for name in ("mrpc", "qqp"))
    assert (mrpc["accuracy"], mrpc["f1"]) == (0.75, pytest.approx(2 * 0.75 / 1.75))
    assert (qqp["accuracy"], qqp["f1"]) == (0.25, 0.0)
    assert majority("cola", "1", "0")["matthews_corr"] == 0
    assert majority("sts-b", "1", "5")["pearson"] == 0


def test_the_table_shows_scores_and_majority_in_80_columns():
    results = {name: BERT[name] for name in ("mnli", "mrpc", "cola")}
    majority = {
        "cola": {"dev": {"matthews_corr": 0.0}},
        "mrpc": {"dev": {"f1": 0.8, "accuracy": 0.7}},
        "mnli": {"dev_matched": {"accuracy": 0.33}, "dev_mismatched": {"accuracy": 0.35}},
    }
    lines = score_table(results, majority).splitlines()
    assert [line.split()[0] for line in lines] == ["GLUE,", "CoLA", "MRPC", "MNLI", "average"]
    assert lines[3].split()[1:3] == ["86.3", "34.0"]
    assert "matched 86.7" in lines[3]
    assert "mismatched 85.9" in lines[3]
    assert lines[4].split()[1:3] == ["78.0", "36.3"]
    assert "over 3 of 9 tasks" in lines[4]
    assert max(map(len, lines)) <= 80
