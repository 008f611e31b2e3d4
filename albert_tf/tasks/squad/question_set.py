# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions as the input of a task, and what becomes of its outputs: answers and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.data.pipeline import RecordSource, length_buckets
from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.answers import Answers, extract_answers, predictions
from albert_tf.tasks.squad.data import Question, read_squad
from albert_tf.tasks.squad.features import build_squad_records, squad_features
from albert_tf.tasks.squad.scoring import (
    answer_threshold,
    find_best_thresholds,
    no_answer_score,
    score,
)
from albert_tf.tasks.squad.task import BASELINE, SquadTask
from albert_tf.tasks.squad.windows import make_windows
from albert_tf.training.specs import EvalSpec


class QuestionSet:
    """Questions to answer with a task's model, and to score if their answers are known.

    Args:
      task: of the model.
      path: of the questions' JSON file.
      cache_dir: where records are kept.
      pad_to_max: give all batches the maximal length.

    Attributes:
      questions: of the file.
      source: their records.

    Raises:
      AlbertError: see `read_squad`.
    """

    def __init__(
        self, task: SquadTask, path: str, cache_dir: str, pad_to_max: bool = False
    ) -> None:
        self.task, self.path = task, path
        self.questions = read_squad(path, version=task.spec.version)
        self.source = _open_records(task, self.questions, path, cache_dir, pad_to_max)
        self._windows = make_windows(self.questions, task.tokenizer, task.spec.windows)

    def eval_spec(self, batch_size: int, every_steps: int | None = None) -> EvalSpec:
        """Evaluation on these questions.

        Raises:
          AlbertError: the answers of a question are not known.
        """
        for question in self.questions:
            if not question.answers and not question.is_impossible:
                raise AlbertError(
                    f"{question.where} has no answers to compare with; use --do_predict for "
                    "questions whose answers are not known."
                )
        batches = self.source.num_batches(batch_size)
        return EvalSpec(self.source.eval_input_fn, every_steps, batches, metrics=self.metrics)

    def answers(self, outputs: Mapping[str, np.ndarray]) -> Answers:
        """The best answers, from the outputs of SquadTask.predict in the order of the records."""
        spec = self.task.spec
        return extract_answers(
            self._windows,
            outputs,
            head=spec.head,
            n_best_size=spec.n_best_size,
            max_answer_length=spec.max_answer_length,
            compat=spec.compat,
        )

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Scores of the outputs, for 2.0 with the threshold that is best for these questions."""
        return self.score(self.answers(outputs), None)

    def score(self, answers: Answers, threshold: float | None) -> dict[str, float]:
        """See `score_answers`."""
        return score_answers(self.questions, answers, self.task.spec.version, threshold)


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
    every = questions, predictions(answers, None), answers.null_odds
    threshold = answer_threshold(*every) if threshold is None else threshold
    return {
        **score(questions, predictions(answers, threshold), version="2.0"),
        **find_best_thresholds(*every),
        "null_threshold": threshold,
        BASELINE: no_answer_score(questions)["f1"],
    }


def open_training_records(
    task: SquadTask, path: str, cache_dir: str, seed: int, pad_to_max: bool = False
) -> RecordSource:
    """The questions of a file as windows to train on.

    Args:
      task: of the model.
      path: of the questions' JSON file.
      cache_dir: where records are kept.
      seed: of their order.
      pad_to_max: give all batches the maximal length.

    Raises:
      AlbertError: see `read_squad`; a question has no answer, or its text does not hold it.
    """
    questions = read_squad(path, version=task.spec.version)
    return _open_records(task, questions, path, cache_dir, pad_to_max, seed)


def _open_records(
    task: SquadTask,
    questions: Sequence[Question],
    name: str,
    cache_dir: str,
    pad_to_max: bool,
    train_seed: int | None = None,
) -> RecordSource:
    """Records from the cache: for training with positions, or for evaluation in order."""
    labelled = train_seed is not None
    windows = task.spec.windows
    path = build_squad_records(
        cache_dir,
        questions,
        task.tokenizer,
        windows,
        version=task.spec.version,
        labelled=labelled,
        compat=task.spec.compat,
        shuffle_seed=train_seed,
    )
    lengths = length_buckets(windows.max_seq_length, pad_to_max)
    source = RecordSource([path], squad_features(labelled), train_seed or 0, lengths=lengths)
    line = f"{name}: {len(questions):,} questions, {source.num_examples:,} windows"
    left_out = source.manifest.statistics.get("windows_left_out")
    print(line + (f", {left_out:,} more without the answer left out" if left_out else ""))
    return source
