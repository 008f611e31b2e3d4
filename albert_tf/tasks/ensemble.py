# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Averages the predictions of several runs.

  python -m albert_tf.tasks.ensemble --run_dirs=runs/a,runs/b --output_dir=runs/ensemble

The runs have predicted the same examples. The output has the same files as theirs, with the mean
probabilities: predictions.tsv, GLUE's predictions/<file>.tsv (of several tasks, too), and SQuAD's
answers, where a text that is not among a run's best has probability 0, and null odds. Source: Lan
et al. (2020), section 4.9.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_overwrite_flag, define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.log import log

FLAGS = flags.FLAGS
#: Files of predictions in an output directory, or in a folder of several.
_TABLES = ("predictions.tsv", "predictions/*.tsv", "*/predictions/*.tsv")


def average(
    members: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    """Returns the mean of the members' numbers by example and answer.

    Args:
      members: probabilities by answer, by the id of the example, the same for all members. An
        answer that a member lacks has probability 0 there.
    """
    mean: dict[str, dict[str, float]] = {}
    for name in members[0]:
        total = mean[name] = {}
        for member in members:
            for answer, value in member[name].items():
                total[answer] = total.get(answer, 0.0) + value / len(members)
    return mean


def average_tables(paths: Sequence[str], output: str) -> None:
    """Writes the mean of predictions.tsv files.

    Raises:
      AlbertError: a file is damaged, or they have different examples or labels.
    """
    from albert_tf.tasks.prediction_tables import read_predictions, write_predictions

    tables = [read_predictions(path) for path in paths]
    labels = tables[0].labels
    for path, table in zip(paths, tables):
        if (table.ids, table.labels) != (tables[0].ids, labels):
            raise AlbertError(f"{path} has other examples or labels than {paths[0]}.")
    answers = labels or [""]
    rows = [zip(table.ids, table.values.reshape(len(table.ids), -1)) for table in tables]
    mean = average([{name: dict(zip(answers, row)) for name, row in table} for table in rows])
    write_predictions(output, mean, [list(row.values()) for row in mean.values()], labels)


def average_answers(folders: Sequence[str], output_dir: str, threshold: float) -> None:
    """Writes the mean of the answers of SQuAD runs.

    A question has as many answers as the longest list of a run. Their `start` and `end` are those
    of the run with the highest probability of the text.

    Args:
      folders: of the runs.
      output_dir: for predictions.json, nbest_predictions.json and, for 2.0, null_odds.json.
      threshold: mean null odds above which a question counts as unanswerable.

    Raises:
      AlbertError: a file is missing or damaged, or they have different questions.
    """
    from albert_tf.tasks.squad.answers import Answers, read_answers, write_answers

    members = [read_answers(folder) for folder in folders]
    for folder, member in zip(folders, members):
        for mine, first in zip(
            (member.nbest, member.null_odds), (members[0].nbest, members[0].null_odds)
        ):
            if mine.keys() != first.keys():
                raise AlbertError(f"{folder} has answers to other questions than {folders[0]}.")
    mean = Answers()
    texts = average(
        [{q: {x["text"]: x["probability"] for x in nbest} for q, nbest in m.nbest.items()}
         for m in members]
    )  # fmt: skip
    for question, found in texts.items():
        lists = [member.nbest[question] for member in members]
        entries = sorted((x for nbest in lists for x in nbest), key=lambda x: x["probability"])
        surest = {entry["text"]: entry for entry in entries}
        # The sort is stable: of equals, the text that an earlier run ranks higher comes first.
        best = sorted(found, key=found.__getitem__, reverse=True)[: max(map(len, lists))]
        mean.nbest[question] = [{**surest[x], "probability": found[x]} for x in best]
    odds = average([{q: {"": x} for q, x in member.null_odds.items()} for member in members])
    mean.null_odds.update({question: value[""] for question, value in odds.items()})
    write_answers(output_dir, mean, threshold if odds else None)


def ensemble(
    run_dirs: Sequence[str], output_dir: str, threshold: float = 0.0, overwrite: bool = False
) -> list[str]:
    """Writes the mean of all predictions of some runs.

    Args:
      run_dirs: output directories of run_classifier.py, run_squad.py or run_race.py, or folders of
        several of run_classifier.py.
      output_dir: for the files, which have the names of the runs' own.
      threshold: see `average_answers`.
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
    found = {folder: _find(folder) for folder in run_dirs}
    names = sorted({name for own in found.values() for name in own})
    for folder, own in found.items():
        if missing := [name for name in names if name not in own]:
            raise AlbertError(f"{folder} lacks {missing[0]}, which others of `run_dirs` have.")
    if not names:
        raise AlbertError(f"{', '.join(run_dirs)} holds no predictions; --do_predict writes them.")
    from albert_tf.tasks.squad.answers import FILES

    for name in [*names, *(FILES if "predictions.json" in names else ())]:
        files.check_output(os.path.join(output_dir, name), (), overwrite)
    for name in names:
        if name.endswith(".tsv"):
            paths = [os.path.join(folder, name) for folder in run_dirs]
            average_tables(paths, os.path.join(output_dir, name))
        else:
            average_answers(run_dirs, output_dir, threshold)
    return names


def _find(folder: str) -> list[str]:
    """Returns the names of a run's files with predictions."""
    patterns = [*_TABLES, "predictions.json"]
    paths = [path for pattern in patterns for path in storage.glob(os.path.join(folder, pattern))]
    return [os.path.relpath(path, folder) for path in paths]


def define_flags() -> None:
    """Defines the flags of this command."""
    define_path(
        "run_dirs", None, "Output directories of run_classifier.py, run_squad.py or run_race.py, "
        "or globs, separated by commas.", required=True
    )  # fmt: skip
    define_path(
        "output_dir", None, "Folder for the averaged predictions.", required=True
    )  # fmt: skip
    flags.DEFINE_float(
        "null_score_diff_threshold", 0.0, "Mean null odds above which a question of SQuAD 2.0 "
        "counts as unanswerable; `albert_tf.tasks.squad.scoring` finds the best value."
    )  # fmt: skip
    define_overwrite_flag()


def _main() -> None:
    run_dirs = files.expand_globs(FLAGS.run_dirs, "run directory")
    threshold = FLAGS.null_score_diff_threshold
    names = ensemble(run_dirs, FLAGS.output_dir, threshold, FLAGS.overwrite)
    log.info(f"The mean of {len(run_dirs)} runs is in {FLAGS.output_dir}: {', '.join(names)}.")


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
