# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""All tasks in one go, and their table."""

import pytest

from albert_tf.errors import DivergedError
from albert_tf.scripts import run_classifier
from albert_tf.tasks.glue import run as glue_run
from albert_tf.tasks.glue.run import score_table
from tests.support.script_flags import parsed_flags

#: The published leaderboard row of BERT with 24 layers, whose average is 80.5.
BERT = {
    "cola": {"matthews_corr": 0.605},
    "sst-2": {"accuracy": 0.949},
    "mrpc": {"f1": 0.893, "accuracy": 0.854},
    "sts-b": {"pearson": 0.876, "spearman": 0.865},
    "qqp": {"f1": 0.721, "accuracy": 0.893},
    "mnli": {"accuracy": 0.867, "dev_mismatched_accuracy": 0.859},
    "qnli": {"accuracy": 0.927},
    "rte": {"accuracy": 0.701},
    "wnli": {"accuracy": 0.651},
}


def test_the_table_has_the_average_of_the_leaderboard_in_80_columns():
    lines = score_table({name: {**found, "loss": 0.5} for name, found in BERT.items()}).splitlines()
    assert lines[2].split()[:2] == ["SST-2", "94.9"]
    assert lines[6] == "MNLI         86.3  accuracy 86.7 / dev_mismatched_accuracy 85.9"
    assert lines[-1] == "average      80.5  over 9 of 9 tasks"
    assert len(lines) == 11 and max(map(len, lines)) <= 80
    assert "over 1 of 9 tasks" in score_table({"rte": BERT["rte"]})


def test_a_task_that_diverges_does_not_hide_the_others(glue_dir, tmp_path, capsys, monkeypatch):
    ran = []

    def run_task(task, data_dir, folder):
        ran.append(task.name)
        if task.name == "cola":
            raise DivergedError(f"{task.name} has no good weights.")
        return BERT[task.name]

    monkeypatch.setattr(glue_run, "run_task", run_task)
    flags = "--do_train", "--do_eval", "--do_predict"
    diverged = pytest.raises(DivergedError, match="Of 9 tasks, 1 diverged, see above: CoLA")
    with parsed_flags(run_classifier.define_flags, *flags), diverged:
        glue_run.run_all(str(glue_dir), str(tmp_path))
    assert ran == list(BERT)
    printed = capsys.readouterr().out
    assert "cola has no good weights." in printed
    table = printed[printed.index("GLUE, dev") :]
    assert "over 8 of 9 tasks" in table and "CoLA" not in table
