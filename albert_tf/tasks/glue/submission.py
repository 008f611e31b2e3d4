# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers for GLUE's server, made of the predictions of runs, as a zip file.

  python -m albert_tf.tasks.glue.submission --run_dirs=runs/glue --output=submission.zip

packs the predictions of run_classifier.py, or their mean from albert_tf.tasks.ensemble.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_overwrite_flag, define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.log import log
from albert_tf.tasks.glue.tasks import GLUE_TASKS, VALUE_RANGE, GlueTask, Split
from albert_tf.tasks.prediction_tables import read_predictions

FLAGS = flags.FLAGS
#: The folder of an output directory with the probabilities for test sets. Its files have the
#: server's names.
PREDICTIONS = "predictions"


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


def read_answers(path: str, task: GlueTask, split: Split) -> list[str]:
    """Reads the predictions for a test set; returns the answers in the server's format.

    Raises:
      AlbertError: see `read_predictions`; or they are not for the rows of the test set.
    """
    ids, labels, values = read_predictions(path)
    if tuple(labels) != task.labels:
        columns = ", ".join(["id", "prediction", *task.labels])
        raise AlbertError(
            f"{path}: these are not predictions for {split.file}: the columns should be {columns}."
        )
    if ids != [str(number) for number in range(split.rows)]:
        raise AlbertError(
            f"{path} has predictions for other rows ({len(ids):,}) than the server expects "
            f"({split.rows:,}, numbered from 0); predict {split.file} as GLUE distributes it."
        )
    return server_answers(task, values)


def find_predictions(run_dirs: Sequence[str]) -> dict[str, str]:
    """Finds the prediction files of runs.

    Args:
      run_dirs: output directories of single tasks, or folders of several.

    Returns:
      Paths by the name of the server's file.

    Raises:
      AlbertError: several runs predict a test set.
    """
    predictions: dict[str, str] = {}
    for folder in run_dirs:
        for pattern in (f"{folder}/{PREDICTIONS}/*.tsv", f"{folder}/*/{PREDICTIONS}/*.tsv"):
            for path in storage.glob(pattern):
                other = predictions.setdefault(os.path.basename(path), path)
                if other != path:
                    raise AlbertError(
                        f"{other} and {path} predict the same test set; give one of the runs, or "
                        "their mean, which python -m albert_tf.tasks.ensemble makes."
                    )
    return predictions


def make_submission(
    run_dirs: Sequence[str], output: str, allow_missing: bool = False, overwrite: bool = False
) -> str:
    """Writes the zip file of a complete submission.

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
    with files.claimed_output(output, predictions.values(), overwrite):
        return _pack(run_dirs, predictions, output, allow_missing)


def _pack(
    run_dirs: Sequence[str],
    predictions: Mapping[str, str],
    output: str,
    allow_missing: bool,
) -> str:
    needed = [split.submission for _, split in submission_files()]
    missing = [file for file in needed if file not in predictions]
    if missing == needed:
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
            if path := predictions.get(split.submission):
                answers, origin = (
                    read_answers(path, task, split),
                    os.path.dirname(os.path.dirname(path)),
                )
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


def define_flags() -> None:
    """Defines the flags of this command."""
    define_path(
        "run_dirs", None, "Output directories of run_classifier.py, folders of several, or globs, "
        "separated by commas.", required=True
    )  # fmt: skip
    define_path(
        "output", "submission.zip", "The zip file to write."
    )  # fmt: skip
    flags.DEFINE_bool(
        "allow_missing", False, "Answer test sets without predictions with the most frequent label "
        "of the training set; the server accepts only complete submissions."
    )  # fmt: skip
    define_overwrite_flag()


def _main() -> None:
    run_dirs = files.expand_globs(FLAGS.run_dirs, "run directory")
    log.info(make_submission(run_dirs, FLAGS.output, FLAGS.allow_missing, FLAGS.overwrite))
    log.info(f"{FLAGS.output} is ready for gluebenchmark.com.")


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
