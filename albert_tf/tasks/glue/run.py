# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs on GLUE: the data they read, and all tasks in turn."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

import numpy as np

from albert_tf.cli.flags import FLAGS
from albert_tf.errors import AlbertError, DivergedError
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.tasks import flags as shared
from albert_tf.tasks.classification.labels import label_values
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.glue.tasks import GLUE_TASKS, GlueTask, Split
from albert_tf.tasks.runner import Examples, run
from albert_tf.tasks.tables import TextExample, read_texts
from albert_tf.training.cluster import output_lock


def run_task(task: GlueTask, data_dir: str, output_dir: str) -> dict[str, float]:
    """Runs one task as the flags say; returns the metrics of its development sets.

    Raises:
      AlbertError: the model in the output directory was trained for another task.
    """
    texts = read_examples(task, shared.requested(), data_dir)
    spec = {
        "labels": task.labels,
        "columns": task.splits["train"].columns,
        "task_name": task.name,
        "best_metric": task.scores[0],
    }
    classifier, config = shared.open_task(
        TextClassificationTask, spec, task.name, output_dir=output_dir
    )
    if (trained_for := classifier.spec.task_name) != task.name:
        raise AlbertError(
            f"The model in {config.output_dir} was trained for {short_repr(trained_for)}, not "
            f"{task.name!r}; give another `output_dir`."
        )
    results = run(classifier, texts, config)
    use = 'classify {} "A text."' + ' "Another one."' * bool(classifier.spec.columns.text_pair)
    shared.print_commands(use, output_dir)
    return results


def read_examples(task: GlueTask, actions: Collection[str], data_dir: str) -> Examples:
    """Reads the splits that a run needs.

    Without its folder, the diagnostic set AX is left out; it is not distributed with the others.

    Raises:
      AlbertError: a file is missing or malformed, or a label is not one of the task's.
    """
    train = read_split(task.splits["train"], data_dir) if "train" in actions else ()
    dev, test = task.dev if "eval" in actions else {}, task.test if "predict" in actions else {}
    if "AX" in test and not files.exists(path := os.path.join(data_dir, test["AX"].file)):
        del test["AX"]
        log.info(f"AX is not predicted, as there is no {path}.")
    held_out, unlabelled = (
        {name: read_split(split, data_dir) for name, split in splits.items()}
        for splits in (dev, test)
    )
    for examples in (train, *held_out.values()):
        label_values(examples, task.labels)  # Its errors come before any task is trained.
    return Examples(train, held_out, unlabelled)


def read_split(split: Split, data_dir: str) -> list[TextExample]:
    """Reads one file below the folder of CoLA, SST-2, …; see `read_rows`."""
    path = os.path.join(data_dir, split.file)
    return read_texts(path, split.columns, header=split.header, skip_malformed=split.skip_malformed)


def find_tasks(data_dir: str) -> list[GlueTask]:
    """Returns the tasks that have a folder in `data_dir`; raises AlbertError if there are none."""
    tasks = [task for task in GLUE_TASKS if files.isdir(os.path.join(data_dir, task.title))]
    if not tasks:
        raise AlbertError(
            f"{data_dir} {'holds no GLUE task' if files.isdir(data_dir) else 'does not exist'}; the"
            f" folders in it would be {', '.join(task.title for task in GLUE_TASKS)}."
        )
    return tasks


def run_all(data_dir: str, output_dir: str) -> None:
    """Runs each task that has data, in a folder of its name, and prints GLUE's table.

    Raises:
      AlbertError: there is no task, or a file of any task is missing or malformed; nothing is
        trained then.
      DivergedError: some tasks have diverged; the others were run, and the table is printed.
    """
    tasks = find_tasks(data_dir)
    for task in tasks:
        read_examples(task, shared.requested(), data_dir)  # Shows errors before hours of training.
    folders = {task.name: os.path.join(output_dir, task.name) for task in tasks}
    results = {}
    diverged = []
    # All at once, so that none turns out to be in use after others were trained.
    with output_lock(FLAGS.strategy, *(folders.values() if FLAGS.do_train else ())):
        for number, task in enumerate(tasks, start=1):
            log.info(f"\n{task.title} ({number} of {len(tasks)})")
            try:
                results[task.name] = run_task(task, data_dir, folders[task.name])
            except DivergedError as error:
                log.info(error)
                diverged.append(task.title)
    if any(results.values()):
        log.info("\n" + score_table(results))
    if diverged:
        raise DivergedError(
            f"Of {len(tasks)} tasks, {len(diverged)} diverged, see above: {', '.join(diverged)}."
        )


def score_table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the GLUE table, in at most 80 columns.

    The score of a task, from 0 to 100, is the mean of the metrics that GLUE reports, of all its
    development sets. The leaderboard's average is the mean over all tasks; MNLI counts once.
    `results` has those of `run_task` by task name. Source: gluebenchmark.com.
    """
    lines, scores = [f"{'GLUE, dev':9}{'score':>8}  metrics"], []
    for task in GLUE_TASKS:
        if metrics := results.get(task.name):
            prefixes = ["", *(f"{name}_" for name in list(task.dev)[1:])]
            shown = {p + name: 100 * metrics[p + name] for p in prefixes for name in task.scores}
            scores.append(np.mean(list(shown.values())))
            values = " / ".join(f"{name} {value:.1f}" for name, value in shown.items())
            lines.append(f"{task.title:9}{scores[-1]:8.1f}  {values}")
    average = f"{'average':9}{np.mean(scores):8.1f}"
    return "\n".join([*lines, f"{average}  over {len(scores)} of {len(GLUE_TASKS)} tasks"])
