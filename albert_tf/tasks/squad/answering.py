# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers to single questions, from the model of an output directory."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.tasks.squad.data import Question, check_threshold
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.thresholds import DEFAULT
from albert_tf.tasks.squad.windows import Windows, make_windows
from albert_tf.tokenization.tokenizer import checked_text
from albert_tf.training.checkpoints import load_weights
from albert_tf.weights.model_folders import model_folder


@dataclasses.dataclass(frozen=True)
class FoundAnswer:
    """An answer in its context.

    Attributes:
      text: the best answer, whether or not the question counts as answerable.
      probability: of this answer among the best ones.
      start, end: its characters [start, end) in the context.
      null_odds: the larger, the likelier the question is unanswerable; a logit.
      answerable: whether the model holds that the context answers the question; always true for a
        model of SQuAD 1.1.
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
      task: what the model was trained for.
      model: with its weights.
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
        """The model of an output directory of run_squad.

        Args:
          folder: the output directory.
          threshold: None for the one kept with the model.
          **changes: see `SquadTask.load`.

        Raises:
          AlbertError: there is no SQuAD model; see also `check_threshold`.
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
        """The best answer to one question.

        Raises:
          AlbertError: the context holds no text, or one of both is no string.
        """
        checked_text(question, "The question")
        checked_text(context, "The context")
        spec = self.task.spec
        asked = Question("question", question, context, (), False, "The text")
        windows = make_windows([asked], self.task.tokenizer, spec.windows)
        outputs = self._predict(self._batch(windows))
        outputs = {name: value.numpy() for name, value in outputs.items()}
        found = self.task.extract(windows, outputs)
        best = found.nbest[asked.id][0]
        null_odds = found.null_odds[asked.id]
        answerable = spec.version == "1.1" or null_odds <= self.threshold
        return FoundAnswer(
            best["text"], best["probability"], best["start"], best["end"], null_odds, answerable
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied are the task, the model and the threshold."""
        return type(self), (self.task, self.model, self.threshold)

    def _batch(self, windows: Windows) -> dict[str, tf.Tensor]:
        """The model's inputs, int32 [windows, longest]."""
        rows = range(len(windows))
        sequences = tf.ragged.constant([windows.sequence(i, self.task.tokenizer) for i in rows])
        mask = tf.cast(tf.ones_like(sequences).to_tensor(), tf.int32)
        in_context = tf.range(tf.shape(mask)[1]) >= windows.context_start[:, None]
        return {
            "input_word_ids": sequences.to_tensor(self.task.tokenizer.pad_id),
            "input_mask": mask,
            "input_type_ids": mask * tf.cast(in_context, tf.int32),
        }


def converse(answerer: QuestionAnswerer) -> None:
    """Reads a text and questions about it from the terminal until an empty line or its end."""
    try:
        while context := input("Text (one line, empty to end): ").strip():
            while question := input("Question (empty for another text): ").strip():
                try:
                    print(_shown(answerer.answer(question, context)))
                except AlbertError as error:
                    print(f"  {error}")
    except EOFError:
        print()


def _shown(found: FoundAnswer) -> str:
    where = f"probability {found.probability:.3f}, characters {found.start} to {found.end}"
    answer = found.text if found.answerable else f"The text does not tell. At best: {found.text}"
    return f"  {answer}\n  ({where})"
