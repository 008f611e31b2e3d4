# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers of several models as one: the mean of their probabilities and of their null odds.

Source: Lan et al. (2020), section 4.9: spans that several models score get the mean of the scores,
and the scores of "unanswerable" are averaged. A span that a model's n-best list lacks counts with
probability 0, so that no model alone outvotes the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.answer_files import read_answers, write_answers
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.data import Question, check_threshold
from albert_tf.tasks.squad.question_set import baseline_note, score_answers
from albert_tf.training.results import print_metrics, write_results


def ensemble(
    questions: Sequence[Question],
    run_dirs: Sequence[str],
    output_dir: str,
    *,
    version: str,
    threshold: float | None = None,
) -> str:
    """Writes the averaged answers of runs and, where the answers are known, eval_results.json.

    Args:
      questions: that all runs have answered.
      run_dirs: output directories of run_squad.py.
      output_dir: where the files go.
      version: "1.1" or "2.0".
      threshold: 2.0: null odds above which a question counts as unanswerable; None for the one
        that gives these questions the best F1.

    Returns:
      The path of predictions.json.

    Raises:
      AlbertError: see `read_answers` and `check_threshold`; there is neither a threshold nor an
        answer to find one by.
    """
    check_threshold(version, threshold)
    known = [bool(question.answers) for question in questions]
    # In 2.0 a question without an answer is an unanswerable one, if others have answers.
    scored = any(known) if version == "2.0" else all(known)
    if version == "2.0" and threshold is None and not scored:
        raise AlbertError(
            "The answers to these questions are not known, so that no threshold can be found; give "
            "`null_score_diff_threshold`, such as null_threshold in the eval_results.json of the "
            "ensemble's answers to the development set."
        )
    names = [question.id for question in questions]
    answers = average_answers(
        [read_answers(folder, names, null_odds=version == "2.0") for folder in run_dirs]
    )
    results = score_answers(questions, answers, version, threshold) if scored else {}
    if version == "2.0" and threshold is None:
        threshold = results["null_threshold"]
    path = write_answers(output_dir, answers, threshold if version == "2.0" else None)
    if results:
        print_metrics(results)
        if note := baseline_note(results):
            print(note)
        write_results(output_dir, results)
    return path


def average_answers(members: Sequence[Answers]) -> Answers:
    """The mean of the members' probabilities and null odds.

    Args:
      members: at least one; all of the same questions.

    Returns:
      For each question as many answers as the longest list of a member has, best first.
      `probability` is the mean over the members; `start` and `end` are those of the member that is
      surest of the text. Null odds are there if the members have them.
    """
    first = members[0]
    return Answers(
        {name: _average([member.nbest[name] for member in members]) for name in first.nbest},
        {
            name: sum(member.null_odds[name] for member in members) / len(members)
            for name in first.null_odds
        },
    )


def _average(lists: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The n-best list of one question, of the members' lists."""
    totals: dict[str, float] = {}
    surest: dict[str, Mapping[str, Any]] = {}
    for entry in (entry for nbest in lists for entry in nbest):
        text, probability = entry["text"], entry["probability"]
        totals[text] = totals.get(text, 0.0) + probability
        if text not in surest or probability > surest[text]["probability"]:
            surest[text] = entry
    # Of equals, the one that an earlier member has, and has further up, comes first.
    best = sorted(totals, key=totals.__getitem__, reverse=True)[: max(map(len, lists))]
    return [
        {
            "text": text,
            "start": surest[text]["start"],
            "end": surest[text]["end"],
            "probability": totals[text] / len(lists),
        }
        for text in best
    ]
