# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions as the input of a task, and what becomes of its outputs: answers and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.tasks.base import ExampleSet
from albert_tf.tasks.squad.answers import Answers, predictions
from albert_tf.tasks.squad.data import Question
from albert_tf.tasks.squad.scoring import (
    answer_threshold,
    find_best_thresholds,
    no_answer_score,
    score,
)
from albert_tf.tasks.squad.windows import Windows

#: The score of leaving every question unanswered.
BASELINE = "all_null_f1"


@dataclasses.dataclass(frozen=True)
class QuestionSet(ExampleSet):
    """Questions, whose records are windows of their contexts.

    Attributes:
      windows: gives the windows; a call is slow the first time.
      extract: gives the answers of windows and outputs.
    """

    windows: Callable[[], Windows]
    extract: Callable[[Windows, Mapping[str, np.ndarray]], Answers]
    _latest: list = dataclasses.field(default_factory=list, repr=False, compare=False)

    def answers(self, outputs: Mapping[str, np.ndarray]) -> Answers:
        """The best answers, from the outputs of SquadTask.predict in the order of the records."""
        # The same outputs are scored and then written.
        if not self._latest or self._latest[0] is not outputs:
            self._latest[:] = outputs, self.extract(self.windows(), outputs)
        return self._latest[1]


def score_answers(
    questions: Sequence[Question], answers: Answers, version: str, threshold: float | None
) -> dict[str, float]:
    """Scores as the official scripts give them, 0 to 100.

    Args:
      questions: with their answers.
      answers: to these questions.
      version: "1.1" or "2.0".
      threshold: null odds above which a question counts as unanswerable; None for the one that
        gives these questions the best F1. Without meaning for 1.1.

    Returns:
      The official keys. For 2.0 also those of `find_best_thresholds`, `null_threshold`, which is
      the one applied, and `all_null_f1`, the F1 of leaving every question unanswered.
    """
    if version == "1.1":
        return score(questions, predictions(answers, None), version="1.1")
    found = questions, predictions(answers, None), answers.null_odds
    threshold = answer_threshold(*found) if threshold is None else threshold
    return {
        **score(questions, predictions(answers, threshold), version="2.0"),
        **find_best_thresholds(*found),
        "null_threshold": threshold,
        BASELINE: no_answer_score(questions)["f1"],
    }


def baseline_note(results: Mapping[str, float]) -> str | None:
    """A line on scores that are no better than the baseline; None if they are."""
    if results["f1"] > results.get(BASELINE, 0.0):
        return None
    return "That is no better than leaving every question unanswered."
