# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers for GLUE's server, made of the predictions of runs, as a zip file.

`make_submission` packs the predictions of run_classifier.py, or their mean from
albert_tf.tasks.ensemble.
"""

from __future__ import annotations

import io
import itertools
import os
import zipfile
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import joined
from albert_tf.io.log import log
from albert_tf.tasks.glue.tasks import GLUE_TASKS, VALUE_RANGE, GlueTask, Split
from albert_tf.tasks.tables import find_predictions, read_predictions

#: Task and test set by the name of the server's file.
TEST_SETS = {
    f"{name}.tsv": (task, split) for task in GLUE_TASKS for name, split in task.test.items()
}


def read_answers(path: str, task: GlueTask, split: Split) -> list[str]:
    """Reads the predictions for a test set; returns the answers in the server's format.

    Raises:
      AlbertError: see `read_predictions`; or they are not for the rows of the test set.
    """
    columns, labels, values = read_predictions(path)
    rows = tuple(map(str, range(split.rows)))
    if (tuple(labels), columns["id"]) != (task.labels, rows):
        raise AlbertError(
            f"{path} has no predictions for {split.file} as GLUE distributes it: {split.rows:,} "
            f"rows, numbered from 0, with the columns {joined(['id', 'prediction', *task.labels])}."
        )
    if labels:
        return [labels[i] for i in values.argmax(axis=-1)]
    return [f"{value:.3f}" for value in np.clip(values, *VALUE_RANGE)]


def make_submission(run_dirs: Sequence[str], output: str, overwrite: bool = False) -> None:
    """Writes the zip file of a complete submission, and says where each answer is from.

    `run_dirs` are output directories of single tasks, or folders of several.

    Raises:
      AlbertError: predictions are missing, incomplete or damaged, or several runs predict a test
        set; or the output exists or is one of them. Nothing is written then.
    """
    predictions = {}
    for path in itertools.chain(*map(find_predictions, run_dirs)):
        name = os.path.basename(path)
        if (other := predictions.setdefault(name, path)) != path and name in TEST_SETS:
            raise AlbertError(
                f"{other} and {path} predict the same test set; give one of the runs, or their "
                "mean, which albert_tf.tasks.ensemble makes."
            )
    if missing := [file for file in TEST_SETS if file not in predictions]:
        raise AlbertError(
            f"There are no predictions for {', '.join(missing)} in {', '.join(run_dirs)}, which "
            "albert classify --do_predict writes; the server accepts only complete submissions."
        )
    packed = io.BytesIO()
    files.check_output(output, predictions.values(), overwrite)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, (task, split) in TEST_SETS.items():
            answers = read_answers(predictions[file], task, split)
            log.info(f"{file:11} {len(answers):7,} answers, {predictions[file]}")
            rows = "".join(f"{number}\t{answer}\n" for number, answer in enumerate(answers))
            # With a fixed date, equal answers give equal files.
            entry = zipfile.ZipInfo(file, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, f"index\tprediction\n{rows}")
    files.write_bytes(output, packed.getvalue())
