# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers for the GLUE server, made of the predictions of one run or several, as a zip file."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.tasks.classification.glue_tasks import GLUE_TASKS, VALUE_RANGE, GlueTask, Split
from albert_tf.tasks.prediction_tables import read_predictions

#: Folders of an output directory: the probabilities for test sets, and the answers made of them.
#: The files in both have the server's names.
PREDICTIONS = "predictions"
ANSWERS = "submission"


def submission_files() -> list[tuple[GlueTask, Split]]:
    """Returns the test sets of a complete submission, in the order of the leaderboard."""
    return [(task, split) for task in GLUE_TASKS for split in task.splits if split.submission]


def server_answers(task: GlueTask, outputs: np.ndarray) -> list[str]:
    """Returns the answers in the server's format.

    Args:
      task: the task.
      outputs: probabilities [n, labels], or values [n], which are clipped to the range of scores.
    """
    if task.labels:
        return [task.labels[i] for i in outputs.argmax(axis=-1)]
    return [f"{value:.3f}" for value in np.clip(outputs, *VALUE_RANGE)]


def server_file(ids: Iterable[str], answers: Iterable[str]) -> str:
    """Returns the content of a file for the server."""
    rows = (f"{id_}\t{answer}\n" for id_, answer in zip(ids, answers))
    return "".join(["index\tprediction\n", *rows])


def average_predictions(paths: Sequence[str], task: GlueTask, split: Split) -> np.ndarray:
    """Averages the predictions of several runs for a test set.

    Returns:
      Probabilities, float64 [rows, labels], or values [rows].

    Raises:
      AlbertError: see `read_predictions`.
    """
    ids = [str(number) for number in range(split.rows)]
    advice = (
        f"the server numbers the rows of {split.submission} from 0, so predict {split.file} as "
        "GLUE distributes it"
    )
    predictions = [read_predictions(path, ids, task.labels, split.file, advice) for path in paths]
    return np.mean(predictions, axis=0)


def find_predictions(run_dirs: Sequence[str]) -> dict[str, list[str]]:
    """Finds the prediction files of runs.

    Args:
      run_dirs: output directories of single tasks, or folders of several.

    Returns:
      For each file of a submission, the paths of its predictions.
    """
    predictions: dict[str, list[str]] = {split.submission: [] for _, split in submission_files()}
    for folder in run_dirs:
        for pattern in (f"{folder}/{PREDICTIONS}/*.tsv", f"{folder}/*/{PREDICTIONS}/*.tsv"):
            for path in storage.glob(pattern):
                paths = predictions.get(os.path.basename(path), [])
                if path not in paths:
                    paths.append(path)
    return predictions


def make_submission(
    run_dirs: Sequence[str], output: str, allow_missing: bool = False, overwrite: bool = False
) -> str:
    """Writes the zip file of a complete submission.

    If several runs predict a test set, their predictions are averaged.

    Args:
      run_dirs: see `find_predictions`.
      output: the zip file.
      allow_missing: answer test sets without predictions with the most frequent label of the
        training set; the server refuses incomplete submissions.
      overwrite: replace an existing file.

    Returns:
      A report with a line for each file.

    Raises:
      AlbertError: predictions are missing, incomplete or damaged, or the output exists or is one of
        them. Nothing is written then.
    """
    predictions = find_predictions(run_dirs)
    with files.claimed_output(output, chain.from_iterable(predictions.values()), overwrite):
        return _pack(run_dirs, predictions, output, allow_missing)


def _pack(
    run_dirs: Sequence[str],
    predictions: Mapping[str, Sequence[str]],
    output: str,
    allow_missing: bool,
) -> str:
    missing = [file for file, paths in predictions.items() if not paths]
    if len(missing) == len(predictions):
        raise AlbertError(
            f"{', '.join(run_dirs)} holds no predictions of GLUE test sets; "
            "run_classifier.py --do_predict writes them."
        )
    if missing and not allow_missing:
        raise AlbertError(
            f"There are no predictions for {', '.join(missing)} in {', '.join(run_dirs)}; give the "
            "runs that have them, or `allow_missing` to answer these with the most frequent label."
        )
    report = []
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for task, split in submission_files():
            paths = predictions[split.submission]
            if paths:
                answers = server_answers(task, average_predictions(paths, task, split))
                runs = ", ".join(os.path.dirname(os.path.dirname(path)) for path in paths)
                origin = f"mean of {len(paths)} runs: {runs}" if len(paths) > 1 else runs
            else:
                answers = [task.majority] * split.rows
                origin = f"always {task.majority}, as there are no predictions"
            report.append(f"{split.submission:11} {len(answers):7,} answers, {origin}")
            # With a fixed date, equal answers give equal files.
            entry = zipfile.ZipInfo(split.submission, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, server_file(map(str, range(len(answers))), answers))
    files.write_bytes(output, packed.getvalue())
    return "\n".join(report)
