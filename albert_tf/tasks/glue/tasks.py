# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The GLUE tasks: files, columns, labels and metrics.

Sources: the header lines of GLUE's own files; for columns and labels also google-research/albert
classifier_utils (its processors); gluebenchmark.com for submissions and scores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.tasks.texts import TextColumns


@dataclasses.dataclass(frozen=True)
class Split:
    """One file of a task.

    Attributes:
      file: its path below the data directory.
      columns: the names of the columns to read.
      header: the column names of a file that does not begin with them.
      skip_malformed: skip and count rows with a wrong number of fields, which are errors otherwise.
      rows: of a test set, the number of answers that the server expects; 0 for other files.
    """

    file: str
    columns: TextColumns
    header: tuple[str, ...] = ()
    skip_malformed: bool = False
    rows: int = 0


@dataclasses.dataclass(frozen=True)
class GlueTask:
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
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_ACCURACY = ("accuracy",)
_SENTENCE = TextColumns("sentence", label="label")
_PAIR = TextColumns("sentence1", "sentence2", "label")
_QUESTIONS = TextColumns("question1", "question2", "is_duplicate")
_MNLI = TextColumns("sentence1", "sentence2", "gold_label")
_MRPC = TextColumns("#1 String", "#2 String", "Quality")
_STS_B = TextColumns("sentence1", "sentence2", "score")
_QNLI = TextColumns("question", "sentence", "label")


def _test(file: str, columns: TextColumns, rows: int, index: str = "index") -> Split:
    """Returns a test set, which has an index and no labels."""
    return Split(file, dataclasses.replace(columns, label=None, id=index), rows=rows)


def _task(
    title: str,
    labels: tuple[str, ...],
    scores: tuple[str, ...],
    columns: TextColumns,
    rows: int,
    index: str = "index",
    **options: Any,
) -> GlueTask:
    """Returns a task with the files train.tsv, dev.tsv and test.tsv."""
    splits = {name: Split(f"{title}/{name}.tsv", columns, **options) for name in ("train", "dev")}
    splits[title] = _test(f"{title}/test.tsv", columns, rows, index)
    return GlueTask(title, labels, scores, splits)


_COLA_HEADER = ("source", "label", "original_label", "sentence")
#: All tasks in the order of the leaderboard.
GLUE_TASKS = (
    _task("CoLA", _BINARY, ("matthews_corr",), _SENTENCE, 1063, header=_COLA_HEADER),
    _task("SST-2", _BINARY, _ACCURACY, _SENTENCE, 1821),
    _task("MRPC", _BINARY, ("accuracy", "f1"), _MRPC, 1725),
    _task("STS-B", (), ("pearson", "spearman"), _STS_B, 1379),
    # Some rows of the distributed files are broken by a line end inside a question.
    _task("QQP", _BINARY, ("accuracy", "f1"), _QUESTIONS, 390965, index="id", skip_malformed=True),
    GlueTask(
        "MNLI",
        _NLI,
        _ACCURACY,
        {
            "train": Split("MNLI/train.tsv", _MNLI),
            "dev_matched": Split("MNLI/dev_matched.tsv", _MNLI),
            "dev_mismatched": Split("MNLI/dev_mismatched.tsv", _MNLI),
            "MNLI-m": _test("MNLI/test_matched.tsv", _MNLI, 9796),
            "MNLI-mm": _test("MNLI/test_mismatched.tsv", _MNLI, 9847),
            # The diagnostic set, without examples of its own to train on.
            "AX": _test("diagnostic/diagnostic.tsv", _MNLI, 1104),
        },
    ),
    _task("QNLI", _ENTAILMENT, _ACCURACY, _QNLI, 5463),
    _task("RTE", _ENTAILMENT, _ACCURACY, _PAIR, 3000),
    _task("WNLI", _BINARY, _ACCURACY, _PAIR, 146),
)
TASKS = {task.name: task for task in GLUE_TASKS}
