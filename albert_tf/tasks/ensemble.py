# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Averages the predictions of several runs.

The runs have predicted the same examples. The output has the same files as theirs, with the mean
probabilities: predictions.tsv, or GLUE's predictions/<file>.tsv (of several tasks, too). Source:
Lan et al. (2020), section 4.9.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tasks.tables import find_predictions, read_predictions, write_predictions


def ensemble(run_dirs: Sequence[str], output_dir: str, overwrite: bool = False) -> list[str]:
    """Writes the mean of all predictions of some runs.

    Args:
      run_dirs: output directories of run_classifier.py or run_race.py, or folders of several of
        run_classifier.py.
      output_dir: for the files, which have the names of the runs' own.
      overwrite: replace existing files.

    Returns:
      The names of the files.

    Raises:
      AlbertError: there are no predictions, a run lacks some, they are damaged or belong to
        different examples, a file exists, or `output_dir` is one of the runs.
    """
    if os.path.realpath(output_dir) in map(os.path.realpath, run_dirs):
        raise AlbertError(
            f"`output_dir`={output_dir} is among `run_dirs`; give a folder that is not one of the "
            "runs, or the averaged predictions would replace its own."
        )
    names = []
    for folder in run_dirs:
        found = [os.path.relpath(path, folder) for path in find_predictions(folder)]
        names = names or found
        if missing := {*names} ^ {*found}:
            raise AlbertError(f"{folder} and {run_dirs[0]} do not both have {missing.pop()}.")
    if not names:
        raise AlbertError(f"{', '.join(run_dirs)} holds no predictions; --do_predict writes them.")
    for name in names:
        files.check_output(os.path.join(output_dir, name), (), overwrite)
    for name in names:
        paths = [os.path.join(folder, name) for folder in run_dirs]
        tables = [read_predictions(path) for path in paths]
        columns, labels, _ = tables[0]
        for path, table in zip(paths, tables):
            if (table.columns, table.labels) != (columns, labels):
                raise AlbertError(f"{path} has other examples or labels than {paths[0]}.")
        mean = np.mean([table.values for table in tables], axis=0)
        write_predictions(os.path.join(output_dir, name), columns, mean, labels)
    return names
