# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs on GLUE: the data they read, the files they write for the server, and all tasks in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.errors import AlbertError, DivergedError
from albert_tf.io import files
from albert_tf.io.json_values import shown
from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.base import ExampleSet
from albert_tf.tasks.classification.glue_tasks import GLUE_TASKS, GlueTask, Split
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.glue.data import Actions, check_splits, find_tasks, read_split
from albert_tf.tasks.glue.scores import majority_metrics, score_table
from albert_tf.tasks.glue.submission import ANSWERS, PREDICTIONS, server_answers, server_file
from albert_tf.tasks.prediction_tables import write_predictions
from albert_tf.tasks.runner import Examples
from albert_tf.weights.run_folder import model_folder


def read_texts(
    task: GlueTask, actions: Actions, data_dir: str | None, source: str = "files"
) -> Examples:
    """Reads the splits of a task that a run needs.

    Args:
      task: the task.
      actions: what the run does.
      data_dir: see `read_split`.
      source: see `read_split`.

    Returns:
      The examples; development and test sets by the names of their splits.

    Raises:
      AlbertError: the task has no such split, or a file is missing or malformed.
    """

    def read(split: Split) -> list[TextExample]:
        examples, skipped = read_split(task, split, data_dir, source)
        if skipped:
            print(
                f"{task.title} {split.name}: {len(skipped):,} rows with a wrong number of fields "
                f"were skipped, the first at {skipped[0]}."
            )
        return examples

    check_splits(task, actions, data_dir, source)
    return Examples(
        train=read(task.of("train")[0]) if actions.train else (),
        evaluate={split.name: read(split) for split in task.of("dev")} if actions.evaluate else {},
        predict={split.name: read(split) for split in task.of("test")} if actions.predict else {},
    )


def open_model(task: GlueTask, output_dir: str, **changes: object) -> TextClassificationTask:
    """Opens the trained classifier of an output directory.

    Args:
      task: the GLUE task to evaluate or predict.
      output_dir: the directory.
      **changes: see `FineTuningTask.load`.

    Raises:
      AlbertError: there is none, or it was trained for another task.
    """
    folder = model_folder(output_dir)
    classifier = TextClassificationTask.load(folder, **changes)
    needed, trained_for = task.model_of or task.name, classifier.spec.task_name
    if trained_for != needed:
        raise AlbertError(
            f"The model in {folder} was trained for {shown(trained_for)}, but {task.title} needs "
            f"one trained for {needed!r}; give another `output_dir`."
        )
    return classifier


def write_outputs(
    task: GlueTask, data: ExampleSet, outputs: Mapping[str, np.ndarray], output_dir: str
) -> None:
    """Writes the probabilities for a test set, and the answers for GLUE's server.

    The files are `predictions/<file>` and `submission/<file>`, with the server's name of the file.
    """
    split = next(split for split in task.of("test") if split.name == data.name)
    path = os.path.join(output_dir, PREDICTIONS, split.submission)
    ids = [example.id for example in data.examples]
    values = outputs["probabilities" if task.labels else "values"]
    write_predictions(path, ids, values, task.labels)
    answer_path = os.path.join(output_dir, ANSWERS, split.submission)
    files.write_text(answer_path, server_file(ids, server_answers(task, values)))
    print(
        f"Predictions for {len(ids):,} examples are in {path}, for the GLUE server in "
        f"{answer_path}."
    )


def _reported_metrics(task: GlueTask, results: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Picks the metrics that GLUE reports, by development set, from those of `runner.report`."""
    names = [split.name for split in task.of("dev")]
    prefixes = ["", *(f"{name}_" for name in names[1:])]
    return {
        name: {metric: results[prefix + metric] for metric in task.scores}
        for name, prefix in zip(names, prefixes)
    }


def run_all(
    run_task: Callable[[GlueTask, Actions, Examples, str], dict[str, float]],
    actions: Actions,
    data_dir: str | None,
    source: str,
    output_dir: str,
) -> None:
    """Runs each task that has data, in a folder of its own, and prints GLUE's table.

    AX is predicted by MNLI's model, into MNLI's folder. Without evaluation, the names of the tasks
    are printed instead of the table.

    Args:
      run_task: runs one task in a given output directory and returns its metrics.
      actions: what to do.
      data_dir: see `read_split`.
      source: see `read_split`.
      output_dir: the parent of the tasks' folders, which have the names of the tasks.

    Raises:
      AlbertError: there is no task, or a file of any task is missing or malformed; nothing is
        trained then.
      DivergedError: some tasks have diverged; the others were run, and the table is printed.
    """
    tasks = list(GLUE_TASKS) if source == "tfds" else find_tasks(data_dir)
    plan = _plan(tasks, actions)
    for task, todo in plan:
        read_texts(task, todo, data_dir, source)  # Shows errors before hours of training.
    results: dict[str, dict[str, dict[str, float]]] = {}
    majority: dict[str, dict[str, dict[str, float]]] = {}
    diverged: list[GlueTask] = []
    for number, (task, todo) in enumerate(plan, start=1):
        print(f"\n{task.title} ({number} of {len(plan)})")
        texts = read_texts(task, todo, data_dir, source)
        model = task.model_of or task.name
        if model in [other.name for other in diverged]:
            print(f"{task.title} is skipped, because {model} diverged.")
            continue
        try:
            metrics = run_task(task, todo, texts, os.path.join(output_dir, model))
        except DivergedError as error:
            print(error)
            diverged.append(task)
            continue
        if todo.evaluate:
            results[task.name] = _reported_metrics(task, metrics)
            majority[task.name] = {
                name: majority_metrics(task, examples) for name, examples in texts.evaluate.items()
            }
    if results:
        print("\n" + score_table(results, majority))
    elif not diverged:
        print(f"\nDone: {', '.join(task.title for task, _ in plan)}.")
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
        elif actions.predict and task.model_of in names:
            plan.append((task, Actions(train=False, evaluate=False, predict=True)))
        else:
            print(f"{task.title} is skipped; its predictions are made with {task.model_of}'s.")
    return plan
