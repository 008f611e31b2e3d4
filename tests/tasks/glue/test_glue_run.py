# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""All tasks in one go."""

import pytest

from albert_tf.errors import DivergedError
from albert_tf.tasks.glue.run import run_all


def test_a_task_that_diverges_does_not_hide_the_others(glue_dir, tmp_path, capsys):
    ran = []

    def run_task(task, todo, texts, folder):
        ran.append(task.name)
        if task.name in ("cola", "mnli"):
            raise DivergedError(f"{task.name} has no good weights.")
        return dict.fromkeys(task.scores, 0.5)

    with pytest.raises(DivergedError, match="Of 10 tasks, 2 diverged, see above: CoLA, MNLI"):
        run_all(run_task, {"train", "eval", "predict"}, str(glue_dir), str(tmp_path))
    assert ran == ["cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli"]
    printed = capsys.readouterr().out
    assert "cola has no good weights." in printed
    assert "AX is skipped, because mnli diverged." in printed
    table = printed[printed.index("GLUE, dev") :]
    assert "over 7 of 9 tasks" in table and "CoLA" not in table
