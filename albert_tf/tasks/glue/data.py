# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads GLUE from its TSV files, or from TensorFlow Datasets, and describes what is there."""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown, shown_names
from albert_tf.io.text_files import check_text_file, read_lines
from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.glue_tasks import GLUE_TASKS, VALUE_RANGE, GlueTask, Split
from albert_tf.tokenization.tokenizer import Tokenizer

DATA_SOURCES = ("files", "tfds")


class SplitData(NamedTuple):
    """What a file holds: its examples, and the places ("file:line") of rows that were left out."""

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
      AlbertError: the file is missing or malformed (its line is named), or the source is.
    """
    if source == "tfds":
        return SplitData(_read_tfds(task, split, data_dir), [])
    path = split_path(split, data_dir)
    data = _read_file(task, split, path)
    if not data.examples:
        raise AlbertError(f"{path} holds no examples.")
    return data


def check_splits(
    task: GlueTask, train: bool, evaluate: bool, predict: bool, data_dir: str | None, source: str
) -> None:
    """Checks that there is data for what is to be done with a task, as far as files tell.

    Raises:
      AlbertError: the task has no such split, or its file is missing.
    """
    if (train or evaluate) and not task.of("train"):
        raise AlbertError(
            f"{task.title} has neither training nor development examples; --do_predict predicts it "
            f"with a model of {task.model_of}, given as --output_dir."
        )
    if source == "files":
        for kind, needed in (("train", train), ("dev", evaluate), ("test", predict)):
            for split in task.of(kind) if needed else ():
                check_text_file(split_path(split, data_dir))


def split_path(split: Split, data_dir: str | None) -> str:
    """Where the file of a split lies.

    Raises:
      AlbertError: there is no data directory.
    """
    if not data_dir:
        raise AlbertError("--data_dir is needed: the folder with GLUE's CoLA, SST-2, … in it.")
    return os.path.join(data_dir, split.file)


def _read_file(task: GlueTask, split: Split, path: str) -> SplitData:
    """A row is what is between two line ends, a field what is between two tabs, quotes included."""
    examples, skipped = [], []
    lines = _numbered_rows(path)
    header = list(split.header)
    if not header:
        _, first = next(lines, (1, []))
        header = [name.strip() for name in first]
    columns = split.columns
    positions = {}
    for use, name in vars(columns).items():
        if name is not None and name not in header:
            raise AlbertError(
                f"{path}:1: {task.title}'s {split.name} file has a column {name!r}, but here are "
                f"{shown_names(header)}."
            )
        positions[use] = header.index(name) if name is not None else None
    for number, fields in lines:
        where = f"{path}:{number}"
        if len(fields) != len(header):
            if not split.skip_malformed:
                raise AlbertError(f"{where}: {len(fields)} fields instead of {len(header)}.")
            skipped.append(where)
            continue
        row = {use: None if at is None else fields[at] for use, at in positions.items()}
        if row["label"] is not None:
            row["label"] = _checked_label(task, row["label"].strip(), where)
        row["id"] = row["id"] or str(len(examples))
        examples.append(TextExample(**row, where=where))
    return SplitData(examples, skipped)


def _numbered_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield number, line.split("\t")


def _checked_label(task: GlueTask, label: str, where: str) -> str:
    if task.labels:
        if label not in task.labels:
            known = ", ".join(task.labels)
            raise AlbertError(f"{where}: {task.title} has no label {shown(label)}; it has {known}.")
        return label
    low, high = VALUE_RANGE
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise AlbertError(
            f"{where}: the score {shown(label)} is not a number from {low:g} to {high:g}."
        )
    return label


def _read_tfds(task: GlueTask, split: Split, data_dir: str | None) -> list[TextExample]:
    """From TensorFlow Datasets, in the order of its indices, with labels as in GLUE's files."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise AlbertError(
            "--data_source=tfds needs TensorFlow Datasets: pip install tensorflow-datasets."
        ) from error
    name = f"glue/{task.tfds_config}"
    part = split.name.replace("dev", "validation")
    dataset, info = tfds.load(name, split=part, data_dir=data_dir, with_info=True)
    names = getattr(info.features["label"], "names", ())
    first, second = (*task.tfds_columns, None)[:2]
    examples = []
    for row in sorted(tfds.as_numpy(dataset), key=lambda row: int(row["idx"])):
        where = f"{name} {part}:{int(row['idx'])}"
        label = None
        if split.columns.label:
            value = row["label"]
            # 0/1 tasks have names in TensorFlow Datasets; GLUE's files have the numbers.
            named = names and names[int(value)] in task.labels
            label = names[int(value)] if named else f"{value:g}"
            label = _checked_label(task, label, where)
        examples.append(
            TextExample(
                id=str(int(row["idx"])),
                text=row[first].decode(),
                text_pair=row[second].decode() if second else None,
                label=label,
                where=where,
            )
        )
    return examples


def find_tasks(data_dir: str | None) -> list[GlueTask]:
    """The tasks that have a folder in `data_dir`.

    Raises:
      AlbertError: there are none.
    """
    folders = {
        task.name: os.path.dirname(split_path(task.splits[0], data_dir)) for task in GLUE_TASKS
    }
    found = [task for task in GLUE_TASKS if files.isdir(folders[task.name])]
    if not found:
        names = ", ".join(map(os.path.basename, folders.values()))
        raise AlbertError(f"{data_dir} holds no GLUE task; its folders would be {names}.")
    return found


def describe(
    task: GlueTask, data_dir: str | None, source: str = "files", tokenizer: Tokenizer | None = None
) -> dict[str, object]:
    """Rows, labels and lengths of every split that is there, as JSON values.

    Args:
      task: the task.
      data_dir: see `read_split`.
      source: see `read_split`.
      tokenizer: lengths are then those of the model's input, special tokens included; without
        one they are in words.

    Raises:
      AlbertError: a file is malformed, or there is none.
    """
    import tensorflow as tf

    splits: dict[str, object] = {}
    for split in task.splits:
        if source == "files" and not tf.io.gfile.exists(split_path(split, data_dir)):
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
