# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and describes GLUE's data: its TSV files, or the copy in TensorFlow Datasets."""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown
from albert_tf.io.text_files import check_text_file
from albert_tf.io.text_tables import TextExample, read_text_table
from albert_tf.tasks.classification.glue_tasks import GLUE_TASKS, VALUE_RANGE, GlueTask, Split
from albert_tf.tokenization.tokenizer import Tokenizer

DATA_SOURCES = ("files", "tfds")


class Actions(NamedTuple):
    """What a run does."""

    train: bool
    evaluate: bool
    predict: bool


class SplitData(NamedTuple):
    """The examples of a split, and the places ("file:line") of malformed rows left out."""

    examples: list[TextExample]
    skipped: list[str]


def read_split(
    task: GlueTask, split: Split, data_dir: str | None, source: str = "files"
) -> SplitData:
    """Reads one split of a task.

    Args:
      task: the task.
      split: one of its splits.
      data_dir: the folder with CoLA/, SST-2/, …; for "tfds" that of TensorFlow Datasets, or None
        for its default.
      source: "files" or "tfds".

    Raises:
      AlbertError: the file is missing or malformed (with its line), or TensorFlow Datasets is not
        installed.
    """
    if source == "tfds":
        return SplitData(_read_tfds(task, split, data_dir), [])
    skipped: list[str] = []
    examples = read_text_table(
        split_path(split, data_dir),
        split.columns,
        split.header,
        skipped if split.skip_malformed else None,
    )
    for example in examples:
        if example.label is not None:
            _check_label(task, example.label, example.where)
    return SplitData(examples, skipped)


def check_splits(task: GlueTask, actions: Actions, data_dir: str | None, source: str) -> None:
    """Checks that the splits a run needs exist, without reading them.

    Raises:
      AlbertError: the task has no such split, or its file is missing.
    """
    if (actions.train or actions.evaluate) and not task.of("train"):
        raise AlbertError(
            f"{task.title} has neither training nor development examples; to predict it, give the "
            f"`output_dir` of a model trained for {task.model_of}, and `do_predict` alone."
        )
    if source == "files":
        for kind, needed in zip(("train", "dev", "test"), actions):
            for split in task.of(kind) if needed else ():
                check_text_file(split_path(split, data_dir))


def split_path(split: Split, data_dir: str | None) -> str:
    """Returns the path of a split's file.

    Raises:
      AlbertError: there is no data directory.
    """
    if not data_dir:
        raise AlbertError("`data_dir` is needed: the folder with GLUE's CoLA, SST-2, … in it.")
    return os.path.join(data_dir, split.file)


def _check_label(task: GlueTask, label: str, where: str) -> None:
    if task.labels:
        if label not in task.labels:
            labels = ", ".join(task.labels)
            raise AlbertError(
                f"{where}: {task.title} has no label {shown(label)}; it has {labels}."
            )
        return
    low, high = VALUE_RANGE
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise AlbertError(
            f"{where}: the score {shown(label)} is not a number from {low:g} to {high:g}."
        )


def _read_tfds(task: GlueTask, split: Split, data_dir: str | None) -> list[TextExample]:
    """Reads from TensorFlow Datasets, in the order of its indices, with the labels of the files."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise AlbertError(
            "`data_source`=tfds needs TensorFlow Datasets: pip install tensorflow-datasets."
        ) from error
    name = f"glue/{task.tfds_config}"
    part = split.name.replace("dev", "validation")
    dataset, info = tfds.load(name, split=part, data_dir=data_dir, with_info=True)
    names = getattr(info.features["label"], "names", ())
    first, second = (*task.tfds_columns, None)[:2]
    examples = []
    for row in sorted(tfds.as_numpy(dataset), key=lambda row: int(row["idx"])):
        index = str(int(row["idx"]))
        where = f"{name} {part}:{index}"
        label = None
        if split.columns.label:
            value = row["label"]
            # Tasks with the labels 0 and 1 have names in TensorFlow Datasets, but not in GLUE.
            named = names and names[int(value)] in task.labels
            label = names[int(value)] if named else f"{value:g}"
            _check_label(task, label, where)
        pair = row[second].decode() if second else None
        examples.append(TextExample(index, row[first].decode(), pair, label, where))
    return examples


def find_tasks(data_dir: str | None) -> list[GlueTask]:
    """Returns the tasks that have a folder in `data_dir`.

    Raises:
      AlbertError: there are none.
    """
    folders = {
        task.name: os.path.dirname(split_path(task.splits[0], data_dir)) for task in GLUE_TASKS
    }
    tasks = [task for task in GLUE_TASKS if files.isdir(folders[task.name])]
    if not tasks:
        names = ", ".join(map(os.path.basename, folders.values()))
        raise AlbertError(f"{data_dir} holds no GLUE task; its folders would be {names}.")
    return tasks


def describe(
    task: GlueTask, data_dir: str | None, source: str = "files", tokenizer: Tokenizer | None = None
) -> dict[str, object]:
    """Counts rows, labels and lengths of each split, as JSON values.

    Args:
      task: the task.
      data_dir: see `read_split`.
      source: see `read_split`.
      tokenizer: counts lengths in tokens of the model's input, including special ones; None counts
        words.

    Returns:
      `task`, `length_unit` and `splits`, by name; a split without a file is None.

    Raises:
      AlbertError: a file is malformed, or all are missing.
    """
    splits: dict[str, object] = {}
    for split in task.splits:
        if source == "files" and not files.exists(split_path(split, data_dir)):
            splits[split.name] = None
            continue
        examples, skipped = read_split(task, split, data_dir, source)
        splits[split.name] = {
            "file": split.file if source == "files" else f"glue/{task.tfds_config}",
            "rows": len(examples),
            "skipped_rows": len(skipped),
            "labels": _label_statistics(task, examples) if split.columns.label else None,
            "lengths": _length_statistics(examples, tokenizer),
        }
    if not any(splits.values()):
        raise AlbertError(f"{data_dir} has no file of {task.title}, such as {task.splits[0].file}.")
    unit = "tokens" if tokenizer else "words"
    return {"task": task.name, "length_unit": unit, "splits": splits}


def _label_statistics(task: GlueTask, examples: Sequence[TextExample]) -> dict[str, float]:
    if task.labels:
        counts = collections.Counter(example.label for example in examples)
        return {label: counts[label] for label in task.labels}
    values = np.array([float(example.label) for example in examples])
    return {"min": values.min(), "mean": round(values.mean(), 4), "max": values.max()}


def _length_statistics(
    examples: Sequence[TextExample], tokenizer: Tokenizer | None
) -> dict[str, float]:
    pairs = [example.text_pair or "" for example in examples]
    texts = [example.text for example in examples]
    if tokenizer:
        first, second = tokenizer.encode_batch(texts), tokenizer.encode_batch(pairs)
        lengths = [len(a) + len(b) + (3 if len(b) else 2) for a, b in zip(first, second)]
    else:
        lengths = [len(a.split()) + len(b.split()) for a, b in zip(texts, pairs)]
    return {
        "mean": round(float(np.mean(lengths)), 1),
        "median": float(np.median(lengths)),
        "95%": round(float(np.percentile(lengths, 95)), 1),
        "max": int(max(lengths)),
    }
