# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs on GLUE: the data they read, the files they write for the server, and all tasks in turn."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np
from absl import flags

from albert_tf.cli.flags import given_settings
from albert_tf.errors import AlbertError, DivergedError
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.io.text_tables import TextExample, read_text_table
from albert_tf.tasks import flags as shared
from albert_tf.tasks.base import ExampleSet
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.fine_tune_config import FineTuneConfig
from albert_tf.tasks.glue.submission import PREDICTIONS
from albert_tf.tasks.glue.tasks import GLUE_TASKS, VALUE_RANGE, GlueTask, Split, find_glue_task
from albert_tf.tasks.prediction_tables import write_predictions
from albert_tf.tasks.runner import Examples, run
from albert_tf.weights.run_folder import model_folder

FLAGS = flags.FLAGS
#: What a run does; see `flags.ACTIONS`.
Actions = Set[str]


def run_glue(name: str, data_dir: str | None) -> None:
    """Runs a task, or "all" of those in a folder, as the flags say."""
    actions = shared.requested()
    if name == "all":
        run_all(_run_task, actions, data_dir, FLAGS.output_dir)
    else:
        task = find_glue_task(name)
        _run_task(task, actions, read_texts(task, actions, data_dir), FLAGS.output_dir)


def _run_task(
    task: GlueTask, actions: Actions, texts: Examples, output_dir: str
) -> dict[str, float]:
    """Runs one GLUE task; returns the metrics of its development sets."""

    def make_spec(length: int) -> ClassificationSpec:
        names = {"task_name": task.name, "best_metric": task.best_metric}
        return ClassificationSpec(task.labels, length, task.splits[0].columns, **names)

    if "train" in actions:
        classifier, config = shared.open_task(
            TextClassificationTask, task.name, make_spec, {}, output_dir=output_dir
        )
    else:
        config = shared.fine_tune_config(None, output_dir=output_dir)
        given = given_settings(FineTuneConfig)
        changes = {n: v for n, v in given.items() if n == "max_seq_length"}
        classifier = open_model(task, output_dir, **changes)
    return run(classifier, texts, config, functools.partial(write_outputs, task))


def read_split(task: GlueTask, split: Split, data_dir: str | None) -> list[TextExample]:
    """Reads one split of a task below the folder of CoLA, SST-2, …; says what it skips.

    Raises:
      AlbertError: the file is missing or malformed (with its line).
    """
    skipped: list[str] | None = [] if split.skip_malformed else None
    path = _split_path(split, data_dir)
    examples = read_text_table(path, split.columns, split.header, skipped)
    for example in examples:
        if example.label is not None:
            _check_label(task, example.label, example.where)
    if skipped:
        log.info(
            f"{task.title} {split.name}: {len(skipped):,} rows with a wrong number of fields were "
            f"skipped, the first at {skipped[0]}."
        )
    return examples


def _split_path(split: Split, data_dir: str | None) -> str:
    if not data_dir:
        raise AlbertError("`data_dir` is needed: the folder with GLUE's CoLA, SST-2, … in it.")
    return os.path.join(data_dir, split.file)


def _check_label(task: GlueTask, label: str, where: str) -> None:
    if task.labels:
        if label not in task.labels:
            labels = ", ".join(task.labels)
            raise AlbertError(
                f"{where}: {task.title} has no label {short_repr(label)}; it has {labels}."
            )
        return
    low, high = VALUE_RANGE
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise AlbertError(
            f"{where}: the score {short_repr(label)} is not a number from {low:g} to {high:g}."
        )


def find_tasks(data_dir: str | None) -> list[GlueTask]:
    """Returns the tasks that have a folder in `data_dir`.

    Raises:
      AlbertError: there are none.
    """
    folders = {
        task.name: os.path.dirname(_split_path(task.splits[0], data_dir)) for task in GLUE_TASKS
    }
    tasks = [task for task in GLUE_TASKS if files.isdir(folders[task.name])]
    if not tasks:
        names = ", ".join(map(os.path.basename, folders.values()))
        raise AlbertError(f"{data_dir} holds no GLUE task; its folders would be {names}.")
    return tasks


def read_texts(task: GlueTask, actions: Actions, data_dir: str | None) -> Examples:
    """Reads the splits that a run needs: development and test sets by the names of their splits.

    Raises:
      AlbertError: the task has no such split, or a file is missing or malformed.
    """

    if actions & {"train", "eval"}:
        task.check_trains()
    needs = (action in actions for action in shared.ACTIONS)
    train, evaluate, predict = (
        {x.name: read_split(task, x, data_dir) for x in task.parts(kind)} if needed else {}
        for kind, needed in zip(("train", "dev", "test"), needs)
    )
    return Examples(train.get("train", ()), evaluate, predict)


def open_model(task: GlueTask, output_dir: str, **changes: object) -> TextClassificationTask:
    """Opens the classifier of an output directory for a task; see `FineTuningTask.load`.

    Raises:
      AlbertError: there is none, or it was trained for another task.
    """
    folder = model_folder(output_dir)
    classifier = TextClassificationTask.load(folder, **changes)
    needed, trained_for = task.model_of or task.name, classifier.spec.task_name
    if trained_for != needed:
        raise AlbertError(
            f"The model in {folder} was trained for {short_repr(trained_for)}, but "
            f"{task.title} needs "
            f"one trained for {needed!r}; give another `output_dir`."
        )
    return classifier


def write_outputs(
    task: GlueTask, data: ExampleSet, outputs: Mapping[str, np.ndarray], output_dir: str
) -> None:
    """Writes predictions/<file> for a test set, with the server's name of the file."""
    split = next(split for split in task.parts("test") if split.name == data.name)
    path = os.path.join(output_dir, PREDICTIONS, split.submission)
    ids = [example.id for example in data.examples]
    values = outputs["probabilities" if task.labels else "values"]
    write_predictions(path, ids, values, task.labels)
    log.info(f"Predictions for {len(ids):,} examples are in {path}.")


def reported_metrics(task: GlueTask, results: Mapping[str, float]) -> dict[str, float]:
    """Picks the metrics that GLUE reports, of all development sets, from those of the runner."""
    prefixes = ["", *(f"{split.name}_" for split in task.parts("dev")[1:])]
    return {p + metric: results[p + metric] for p in prefixes for metric in task.scores}


def score_table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the GLUE table, in at most 80 columns.

    The score of a task, from 0 to 100, is the mean of its metrics. The leaderboard's average is the
    mean over all tasks but AX; MNLI counts once. Source: gluebenchmark.com.

    Args:
      results: `reported_metrics` by task name.
    """
    lines, scores = [f"{'GLUE, dev':9}{'score':>8}  metrics"], []
    scored = [task for task in GLUE_TASKS if task.scores]
    for task in scored:
        if metrics := results.get(task.name):
            scores.append(100 * float(np.mean(list(metrics.values()))))
            values = " / ".join(f"{name} {100 * value:.1f}" for name, value in metrics.items())
            lines.append(f"{task.title:9}{scores[-1]:8.1f}  {values}")
    average = f"{'average':9}{np.mean(scores):8.1f}"
    return "\n".join([*lines, f"{average}  over {len(scores)} of {len(scored)} tasks"])


def run_all(
    run_task: Callable[[GlueTask, Actions, Examples, str], dict[str, float]],
    actions: Actions,
    data_dir: str | None,
    output_dir: str,
) -> None:
    """Runs each task that has data, in a folder of its own, and prints GLUE's table.

    AX is predicted by MNLI's model, into MNLI's folder. Without evaluation, the names of the tasks
    are printed instead of the table.

    Args:
      run_task: runs one task in a given output directory and returns its metrics.
      actions: what to do.
      data_dir: see `read_split`.
      output_dir: the parent of the tasks' folders, which have the names of the tasks.

    Raises:
      AlbertError: there is no task, or a file of any task is missing or malformed; nothing is
        trained then.
      DivergedError: some tasks have diverged; the others were run, and the table is printed.
    """
    plan = _plan(find_tasks(data_dir), actions)
    for task, todo in plan:
        read_texts(task, todo, data_dir)  # Shows errors before hours of training.
    results: dict[str, dict[str, float]] = {}
    diverged: list[GlueTask] = []
    for number, (task, todo) in enumerate(plan, start=1):
        log.info(f"\n{task.title} ({number} of {len(plan)})")
        texts = read_texts(task, todo, data_dir)
        model = task.model_of or task.name
        if model in [other.name for other in diverged]:
            log.info(f"{task.title} is skipped, because {model} diverged.")
            continue
        try:
            metrics = run_task(task, todo, texts, os.path.join(output_dir, model))
        except DivergedError as error:
            log.info(error)
            diverged.append(task)
            continue
        if "eval" in todo:
            results[task.name] = reported_metrics(task, metrics)
    if results:
        log.info("\n" + score_table(results))
    elif not diverged:
        log.info(f"\nDone: {', '.join(task.title for task, _ in plan)}.")
    if diverged:
        names = ", ".join(task.title for task in diverged)
        raise DivergedError(f"Of {len(plan)} tasks, {len(diverged)} diverged, see above: {names}.")


def _plan(tasks: Sequence[GlueTask], actions: Actions) -> list[tuple[GlueTask, Actions]]:
    """Returns what to do with each task; leaves out AX if MNLI's model does not predict it."""
    names = [task.name for task in tasks]
    plan = []
    for task in tasks:
        if not task.model_of:
            plan.append((task, actions))
        elif "predict" in actions and task.model_of in names:
            plan.append((task, {"predict"}))
        else:
            log.info(f"{task.title} is skipped; its predictions are made with {task.model_of}'s.")
    return plan
