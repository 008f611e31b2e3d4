# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""GLUE's scores of the tasks, their average, and the table of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.glue_tasks import GLUE_TASKS, GlueTask
from albert_tf.tasks.classification.metrics import classification_metrics, regression_metrics

#: The metrics of a task, by development set.
Results = Mapping[str, Mapping[str, float]]


def task_score(task: GlueTask, results: Results) -> float:
    """Returns GLUE's score of a task, from 0 to 100.

    It is the mean of the metrics that GLUE reports for the task, such as F1 and accuracy, over all
    of its development sets. Source: gluebenchmark.com.

    Args:
      task: the task.
      results: metrics by the name of the development set.
    """
    values = [metrics[name] for metrics in results.values() for name in task.scores]
    return 100 * float(np.mean(values))


def glue_average(scores: Mapping[str, float]) -> float:
    """Returns the leaderboard's average: the mean over all tasks but AX; MNLI counts once."""
    return float(np.mean([value for name, value in scores.items() if name != "ax"]))


def majority_metrics(task: GlueTask, examples: Sequence[TextExample]) -> dict[str, float]:
    """Returns the metrics of always answering the training set's most frequent label, or mean."""
    if not task.labels:
        labels = np.array([float(example.label) for example in examples])
        return regression_metrics(np.full(len(labels), float(task.majority)), labels)
    labels = np.array([task.labels.index(example.label) for example in examples])
    answer = np.eye(len(task.labels))[task.labels.index(task.majority)]
    return classification_metrics(np.tile(answer, (len(labels), 1)), labels)


def score_table(results: Mapping[str, Results], majority: Mapping[str, Results]) -> str:
    """Returns the GLUE table, in at most 80 columns.

    Args:
      results: by task name.
      majority: by task name, for always giving the most frequent label.
    """
    lines = [f"{'GLUE, dev':9}{'score':>8}{'majority':>10}  metrics"]
    scores: dict[str, float] = {}
    constant: dict[str, float] = {}
    scored = [task for task in GLUE_TASKS if task.scores]
    for task in scored:
        if task.name not in results:
            continue
        scores[task.name] = task_score(task, results[task.name])
        constant[task.name] = task_score(task, majority[task.name])
        shown = " / ".join(
            f"{name}{split.removeprefix('dev').replace('_', ' ')} {100 * metrics[name]:.1f}"
            for split, metrics in results[task.name].items()
            for name in task.scores
        )
        lines.append(f"{task.title:9}{scores[task.name]:8.1f}{constant[task.name]:10.1f}  {shown}")
    average, baseline = glue_average(scores), glue_average(constant)
    lines.append(
        f"{'average':9}{average:8.1f}{baseline:10.1f}  over {len(scores)} of {len(scored)} tasks"
    )
    return "\n".join(lines)
