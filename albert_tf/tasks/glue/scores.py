# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""GLUE's score of a task, its average over tasks, and the table of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.glue_tasks import GLUE_TASKS, GlueTask
from albert_tf.tasks.classification.metrics import classification_metrics, regression_metrics

#: Metrics of each development set of a task.
Results = Mapping[str, Mapping[str, float]]


def task_score(task: GlueTask, results: Results) -> float:
    """GLUE's one number for a task, times 100.

    It is the mean of the metrics that GLUE reports for the task (F1 and accuracy, Pearson and
    Spearman), and for MNLI of both development sets. Source: gluebenchmark.com.

    Args:
      task: the task.
      results: metrics by the name of the development set.
    """
    values = [metrics[name] for metrics in results.values() for name in task.scores]
    return 100 * float(np.mean(values))


def glue_average(scores: Mapping[str, float]) -> float:
    """The leaderboard's average: the plain mean over tasks; MNLI is one task, AX is none."""
    return float(np.mean([value for name, value in scores.items() if name != "ax"]))


def majority_metrics(task: GlueTask, examples: Sequence[TextExample]) -> dict[str, float]:
    """Metrics of always giving the training set's most frequent label (its mean, if numbers)."""
    if not task.labels:
        labels = np.array([float(example.label) for example in examples])
        return regression_metrics(np.full(len(labels), float(task.majority)), labels)
    labels = np.array([task.labels.index(example.label) for example in examples])
    answer = np.eye(len(task.labels))[task.labels.index(task.majority)]
    return classification_metrics(np.tile(answer, (len(labels), 1)), labels)


def score_table(results: Mapping[str, Results], majority: Mapping[str, Results]) -> str:
    """The GLUE table in at most 80 columns.

    Args:
      results: for each task's name the metrics of its development sets.
      majority: the same for always giving the most frequent label.
    """
    lines = [f"{'GLUE, dev':9}{'score':>8}{'majority':>10}  metrics"]
    scores: dict[str, float] = {}
    constant: dict[str, float] = {}
    for task in GLUE_TASKS:
        if task.name not in results or not task.scores:
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
    all_tasks = sum(1 for task in GLUE_TASKS if task.scores)
    lines.append(
        f"{'average':9}{average:8.1f}{baseline:10.1f}  over {len(scores)} of {all_tasks} tasks"
    )
    return "\n".join(lines)
