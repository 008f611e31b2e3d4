# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The GLUE tasks: files, columns, labels, metrics, and the submission files of the server.

Sources: the header lines of GLUE's own files; for columns and labels also google-research/albert
classifier_utils (its processors); gluebenchmark.com for submissions and scores.
"""

from __future__ import annotations

import dataclasses

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextColumns


@dataclasses.dataclass(frozen=True)
class Split:
    """One file of a task.

    Attributes:
      name: train, dev or test; dev_matched, … where there are two.
      file: its path below the data directory.
      columns: the names of the columns to read.
      header: the column names of a file that does not begin with them.
      skip_malformed: skip and count rows with a wrong number of fields, which are errors otherwise.
      submission: the server's name for the file of answers; only test sets have one.
      rows: the number of answers that the server expects.
    """

    name: str
    file: str
    columns: TextColumns
    header: tuple[str, ...] = ()
    skip_malformed: bool = False
    submission: str | None = None
    rows: int | None = None


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """One GLUE task.

    Attributes:
      name: as in `task_name`.
      title: as on the leaderboard.
      splits: train, then development sets, then test sets.
      labels: the classes, as the server names them; empty for regression.
      majority: the most frequent label of the training set; for regression its mean.
      best_metric: the metric that selects the best checkpoint.
      scores: the metrics that GLUE reports; their mean is the task's score.
      model_of: the task that trains the model for this one; None for the task itself.
    """

    name: str
    title: str
    splits: tuple[Split, ...]
    labels: tuple[str, ...]
    majority: str
    best_metric: str
    scores: tuple[str, ...]
    model_of: str | None = None

    def check_trains(self) -> None:
        """Raises AlbertError if the task has neither training nor development examples."""
        if not self.parts("train"):
            raise AlbertError(
                f"{self.title} has neither training nor development examples; to predict it, give "
                f"the `output_dir` of a model trained for {self.model_of}, and `do_predict` alone."
            )

    def parts(self, kind: str) -> tuple[Split, ...]:
        """Returns the splits of a kind: train, dev or test."""
        return tuple(split for split in self.splits if split.name.startswith(kind))


#: The range of regression labels (STS-B's similarity).
VALUE_RANGE = (0.0, 5.0)
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")


def _splits(
    folder: str, columns: TextColumns, rows: int, index: str = "index"
) -> tuple[Split, ...]:
    """Returns the splits of train.tsv, dev.tsv and test.tsv, which has an index and no labels."""
    test = dataclasses.replace(columns, label=None, id=index)
    return (
        Split("train", f"{folder}/train.tsv", columns),
        Split("dev", f"{folder}/dev.tsv", columns),
        Split("test", f"{folder}/test.tsv", test, submission=f"{folder}.tsv", rows=rows),
    )


def _cola() -> tuple[Split, ...]:
    header = ("source", "label", "original_label", "sentence")
    train, dev, test = _splits("CoLA", TextColumns("sentence", label="label"), 1063)
    named = (dataclasses.replace(split, header=header) for split in (train, dev))
    return (*named, test)


def _qqp() -> tuple[Split, ...]:
    columns = TextColumns("question1", "question2", "is_duplicate")
    train, dev, test = _splits("QQP", columns, 390965, index="id")
    # Some rows of the distributed files are broken by a line end inside a question.
    skipping = (dataclasses.replace(split, skip_malformed=True) for split in (train, dev))
    return (*skipping, test)


def _mnli() -> tuple[Split, ...]:
    columns = TextColumns("sentence1", "sentence2", "gold_label")
    test = dataclasses.replace(columns, label=None, id="index")
    splits = [Split("train", "MNLI/train.tsv", columns)]
    splits += [Split(f"dev_{k}", f"MNLI/dev_{k}.tsv", columns) for k in ("matched", "mismatched")]
    for kind, letter, rows in (("matched", "m", 9796), ("mismatched", "mm", 9847)):
        file, sent = f"MNLI/test_{kind}.tsv", f"MNLI-{letter}.tsv"
        splits.append(Split(f"test_{kind}", file, test, submission=sent, rows=rows))
    return tuple(splits)


_SENTENCE = TextColumns("sentence", label="label")
_PAIR = TextColumns("sentence1", "sentence2", "label")
_ACCURACY = ("accuracy",)

#: All tasks in the order of the leaderboard.
GLUE_TASKS = (
    GlueTask(
        "cola", "CoLA", _cola(), _BINARY, "1",
        "matthews_corr", ("matthews_corr",),
    ),
    GlueTask(
        "sst-2", "SST-2", _splits("SST-2", _SENTENCE, 1821), _BINARY, "1",
        "accuracy", _ACCURACY,
    ),
    GlueTask(
        "mrpc", "MRPC",
        _splits("MRPC", TextColumns("#1 String", "#2 String", "Quality"), 1725), _BINARY, "1",
        "accuracy", ("f1", "accuracy"),
    ),
    GlueTask(
        "sts-b", "STS-B",
        _splits("STS-B", TextColumns("sentence1", "sentence2", "score"), 1379), (), "2.701",
        "pearson", ("pearson", "spearman"),
    ),
    GlueTask(
        "qqp", "QQP", _qqp(), _BINARY, "0",
        "accuracy", ("f1", "accuracy"),
    ),
    GlueTask(
        "mnli", "MNLI", _mnli(), _NLI, "contradiction",
        "accuracy", _ACCURACY,
    ),
    GlueTask(
        "qnli", "QNLI", _splits("QNLI", TextColumns("question", "sentence", "label"), 5463),
        _ENTAILMENT, "not_entailment",
        "accuracy", _ACCURACY,
    ),
    GlueTask(
        "rte", "RTE", _splits("RTE", _PAIR, 3000), _ENTAILMENT, "entailment",
        "accuracy", _ACCURACY,
    ),
    GlueTask(
        "wnli", "WNLI", _splits("WNLI", _PAIR, 146), _BINARY, "0",
        "accuracy", _ACCURACY,
    ),
    GlueTask(
        "ax", "AX",
        (
            Split(
                "test", "diagnostic/diagnostic.tsv",
                TextColumns("sentence1", "sentence2", id="index"), submission="AX.tsv", rows=1104,
            ),
        ),
        _NLI, "contradiction",
        "accuracy", (), model_of="mnli",
    ),
)  # fmt: skip


def find_glue_task(name: str) -> GlueTask:
    """Returns the task of a name, in upper or lower case.

    Raises:
      AlbertError: there is none.
    """
    for task in GLUE_TASKS:
        if task.name == name.lower():
            return task
    names = ", ".join(task.name for task in GLUE_TASKS)
    raise AlbertError(f"There is no GLUE task {name!r}; the tasks are {names}.")
