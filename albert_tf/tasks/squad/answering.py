# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers single questions with the model of an output directory."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.tasks.squad.answers import extract_answers
from albert_tf.tasks.squad.data import Question
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.thresholds import DEFAULT, check_threshold
from albert_tf.tasks.squad.windows import make_windows
from albert_tf.tokenization.sequences import pad_sequences
from albert_tf.tokenization.tokenizer import checked_text
from albert_tf.training.checkpoints import load_weights
from albert_tf.weights.model_folders import model_folder


@dataclasses.dataclass(frozen=True)
class FoundAnswer:
    """An answer in its context.

    Attributes:
      text: the best answer, also if the question counts as unanswerable.
      probability: probability of this answer among the best ones.
      start, end: its characters [start, end) in the context.
      null_odds: a logit: the larger, the more likely the question is unanswerable.
      answerable: whether the context answers the question according to the model; always true for
        SQuAD 1.1.
    """

    text: str
    probability: float
    start: int
    end: int
    null_odds: float
    answerable: bool = True


class QuestionAnswerer:
    """Answers questions with a model.

    Args:
      task: the task of the model.
      model: the model with its weights.
      threshold: null odds above which a question counts as unanswerable.

    Example:
      answerer = QuestionAnswerer.load("runs/squad")
      answerer.answer("Who wrote it?", "It was written by Ada Lovelace in 1843.").text
    """

    def __init__(self, task: SquadTask, model: keras.Model, threshold: float) -> None:
        self.task, self.model, self.threshold = task, model, threshold
        token = tf.TensorSpec([None, None], tf.int32)
        names = ("input_word_ids", "input_mask", "input_type_ids")
        self._predict = tf.function(
            lambda batch: self.task.predict(self.model, batch),
            [dict.fromkeys(names, token)],
            autograph=False,
        )

    @classmethod
    def load(
        cls, folder: str, threshold: float | None = None, **changes: object
    ) -> QuestionAnswerer:
        """Loads the model of an output directory of run_squad.py.

        Args:
          folder: the output directory.
          threshold: None for the threshold kept with the model.
          **changes: see `SquadTask.load`.

        Raises:
          AlbertError: the folder has no SQuAD model; see also `check_threshold`.
        """
        folder = model_folder(folder)
        task = SquadTask.load(folder, **changes)
        check_threshold(task.spec.version, threshold)
        if threshold is None:
            threshold = (task.threshold or DEFAULT).value
        model = task.build_model()
        load_weights(folder, model.named_weights(), whole=True)
        return cls(task, model, threshold)

    def answer(self, question: str, context: str) -> FoundAnswer:
        """Returns the best answer to one question.

        Raises:
          AlbertError: the context has no text, or an argument is not a string.
        """
        checked_text(question, "The question")
        checked_text(context, "The context")
        tokenizer, spec = self.task.tokenizer, self.task.spec
        asked = Question("question", question, context, (), False, "The text")
        windows = make_windows([asked], tokenizer, spec.windows)
        sequences = [windows.sequence(row, tokenizer) for row in range(len(windows))]
        batch = pad_sequences(tokenizer, sequences, windows.context_start)
        outputs = self._predict({name: tf.constant(value) for name, value in batch.items()})
        answers = extract_answers(windows, {k: v.numpy() for k, v in outputs.items()}, spec)
        best, null_odds = answers.nbest[asked.id][0], answers.null_odds[asked.id]
        answerable = spec.version == "1.1" or null_odds <= self.threshold
        return FoundAnswer(
            best["text"], best["probability"], best["start"], best["end"], null_odds, answerable
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies the task, the model and the threshold."""
        return type(self), (self.task, self.model, self.threshold)


def converse(answerer: QuestionAnswerer) -> None:
    """Reads texts and questions about them from the terminal until an empty line or its end."""
    try:
        while context := input("Text (one line, empty to end): ").strip():
            while question := input("Question (empty for another text): ").strip():
                try:
                    print(_format(answerer.answer(question, context)))
                except AlbertError as error:
                    print(f"  {error}")
    except EOFError:
        print()


def _format(found: FoundAnswer) -> str:
    text = found.text if found.answerable else f"The text has no answer. Best guess: {found.text}"
    return (
        f"  {text}\n"
        f"  (probability {found.probability:.3f}, characters {found.start} to {found.end})"
    )
