# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The GLUE tasks: files, columns, labels and metrics.

Sources: the header lines of GLUE's own files; for columns and labels also google-research/albert
classifier_utils (its processors); gluebenchmark.com for submissions and scores.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from albert_tf.tasks.tables import TextColumns


class Split(NamedTuple):
    """One file of a task.

    Attributes:
      file: its path below the data directory; AX, the diagnostic set, has none to train on.
      columns: the names of the columns to read.
      header: the column names of a file that does not begin with them.
      skip_malformed: skip and count rows with a wrong number of fields, which are errors otherwise:
        in QQP, line ends inside of questions break some rows.
      rows: of a test set, the number of answers that the server expects; 0 for other files.
    """

    file: str
    columns: TextColumns
    header: Sequence[str] = ()
    skip_malformed: bool = False
    rows: int = 0


class GlueTask(NamedTuple):
    """One GLUE task.

    Attributes:
      title: as on the leaderboard.
      labels: the classes, as the server names them; empty for regression.
      scores: the metrics that GLUE reports. Their mean is the task's score; the first one selects
        the best weights.
      splits: the files by name: `train`; `dev` or two dev_…; test sets have the server's names.
    """

    title: str
    labels: tuple[str, ...]
    scores: tuple[str, ...]
    splits: Mapping[str, Split]

    @property
    def name(self) -> str:
        """The name as in `task_name`."""
        return self.title.lower()

    @property
    def dev(self) -> dict[str, Split]:
        """The development sets by name."""
        return {name: split for name, split in self.splits.items() if name.startswith("dev")}

    @property
    def test(self) -> dict[str, Split]:
        """The test sets by the names of the server's files, without .tsv."""
        return {name: split for name, split in self.splits.items() if split.rows}


#: The range of regression labels (STS-B's similarity).
VALUE_RANGE = (0.0, 5.0)
#: A part of the package, so on the local file system.
_FILE = pathlib.Path(__file__).parents[2] / "configs/glue/tasks.json"
#: All tasks in the order of the leaderboard.
GLUE_TASKS = tuple(
    GlueTask(
        task["title"],
        tuple(task["labels"]),
        tuple(task["scores"]),
        {
            name: Split(**{**values, "columns": TextColumns(**values["columns"])})
            for name, values in task["splits"].items()
        },
    )
    for task in json.loads(_FILE.read_text("utf-8"))
)
TASKS = {task.name: task for task in GLUE_TASKS}
