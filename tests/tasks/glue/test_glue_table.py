# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
from albert_tf.tasks.glue.run import reported_metrics, score_table
from albert_tf.tasks.glue.tasks import find_glue_task

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
    results = {
        name: reported_metrics(find_glue_task(name), {**metrics, "loss": 0.5})
        for name, metrics in BERT.items()
    }
    assert results == BERT
    lines = score_table(results).splitlines()
    assert lines[2].split()[:2] == ["SST-2", "94.9"]
    assert lines[6] == "MNLI         86.3  accuracy 86.7 / dev_mismatched_accuracy 85.9"
    assert lines[-1] == "average      80.5  over 9 of 9 tasks"
    assert len(lines) == 11 and max(map(len, lines)) <= 80
    assert "over 1 of 9 tasks" in score_table({"rte": BERT["rte"]})
