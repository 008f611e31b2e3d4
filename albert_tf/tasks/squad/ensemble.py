# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Averages the answers of several models: their probabilities and their null odds.

Source: Lan et al. (2020), section 4.9: spans that several models score get the mean of the scores,
and the scores of "unanswerable" are averaged. A span that is not in a model's n-best list counts
with probability 0, so that no single model outvotes the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.answer_files import read_answers, write_answers
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.data import Question
from albert_tf.tasks.squad.scoring import CONSTANT_ANSWERS, score_answers
from albert_tf.tasks.squad.thresholds import check_threshold
from albert_tf.training.results import constant_answer_note, print_metrics, write_results


def ensemble(
    questions: Sequence[Question],
    run_dirs: Sequence[str],
    output_dir: str,
    *,
    version: str,
    threshold: float | None = None,
) -> str:
    """Writes the averaged answers of runs and, if gold answers are known, eval_results.json.

    Args:
      questions: questions that all runs have answered.
      run_dirs: output directories of run_squad.py.
      output_dir: folder of the new files.
      version: "1.1" or "2.0".
      threshold: for 2.0, null odds above which a question counts as unanswerable; None for the
        value with the best F1 on these questions.

    Returns:
      The path of predictions.json.

    Raises:
      AlbertError: see `read_answers` and `check_threshold`; there is neither a threshold nor a
        gold answer to find one.
    """
    check_threshold(version, threshold)
    has_answers = [bool(question.answers) for question in questions]
    # In 2.0 a question without an answer is unanswerable, provided that others have answers.
    scored = any(has_answers) if version == "2.0" else all(has_answers)
    if version == "2.0" and threshold is None and not scored:
        raise AlbertError(
            "The answers to these questions are unknown, so no threshold can be found; give "
            "`null_score_diff_threshold`, such as null_threshold in the eval_results.json of the "
            "ensemble's answers to the development set."
        )
    ids = [question.id for question in questions]
    answers = average_answers(
        [read_answers(folder, ids, null_odds=version == "2.0") for folder in run_dirs]
    )
    results = score_answers(questions, answers, version, threshold) if scored else {}
    if version == "2.0" and threshold is None:
        threshold = results["null_threshold"]
    path = write_answers(output_dir, answers, threshold if version == "2.0" else None)
    if results:
        print_metrics(results)
        if note := constant_answer_note(results, CONSTANT_ANSWERS):
            print(note)
        write_results(output_dir, results)
    return path


def average_answers(members: Sequence[Answers]) -> Answers:
    """Returns the mean of the members' probabilities and null odds.

    Args:
      members: answers of at least one model, all to the same questions.

    Returns:
      For each question as many answers as the longest list of a member, best first. `probability`
      is the mean over the members; `start` and `end` are those of the member with the highest
      probability of the text. Null odds are averaged if the members have them.
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
    """Averages the members' n-best lists of one question."""
    totals: dict[str, float] = {}
    surest: dict[str, Mapping[str, Any]] = {}
    for entry in (entry for nbest in lists for entry in nbest):
        text, probability = entry["text"], entry["probability"]
        totals[text] = totals.get(text, 0.0) + probability
        if text not in surest or probability > surest[text]["probability"]:
            surest[text] = entry
    # The sort is stable: of equals, the text that an earlier member ranks higher comes first.
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
