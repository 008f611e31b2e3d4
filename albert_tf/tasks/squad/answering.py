# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers to single questions, from the model of an output directory."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.tasks.fine_tune import model_folder
from albert_tf.tasks.squad.answers import extract_answers
from albert_tf.tasks.squad.data import Question
from albert_tf.tasks.squad.evaluation import DEFAULT_THRESHOLD, load_threshold
from albert_tf.tasks.squad.task import load_squad_task
from albert_tf.tasks.squad.windows import Windows, make_windows
from albert_tf.training.checkpoints import load_weights


@dataclasses.dataclass(frozen=True)
class FoundAnswer:
    """An answer in its context.

    Attributes:
      text: the best answer, whether or not the question counts as answerable.
      probability: of this answer among the best ones.
      start, end: its characters [start, end) in the context.
      answerable: whether the model holds that the context answers the question; always true for a
        model of SQuAD 1.1.
    """

    text: str
    probability: float
    start: int
    end: int
    answerable: bool = True


class QuestionAnswerer:
    """Loads a model once and answers questions.

    Args:
      folder: output directory of a run of run_squad.
      threshold: null odds above which a question counts as unanswerable; None for the one kept
        with the model.
      **changes: see `load_squad_task`.

    Raises:
      AlbertError: there is no SQuAD model.

    Example:
      answerer = QuestionAnswerer("runs/squad")
      answerer.answer("Who wrote it?", "It was written by Ada Lovelace in 1843.").text
    """

    def __init__(self, folder: str, threshold: float | None = None, **changes: object) -> None:
        folder = model_folder(folder)
        self.task = load_squad_task(folder, **changes)
        if threshold is None:
            threshold = (load_threshold(folder) or [DEFAULT_THRESHOLD])[0]
        self.threshold = threshold
        self.model = self.task.build_model()
        load_weights(folder, self.model.named_weights(), whole=True)
        token = tf.TensorSpec([None, None], tf.int32)
        names = ("input_word_ids", "input_mask", "input_type_ids")
        self._predict = tf.function(
            lambda batch: self.task.predict(self.model, batch), [dict.fromkeys(names, token)]
        )

    def answer(self, question: str, context: str) -> FoundAnswer:
        """The best answer to one question.

        Raises:
          AlbertError: the context holds no text.
        """
        spec = self.task.spec
        asked = Question("question", question, context, (), False, "The text")
        windows = make_windows([asked], self.task.tokenizer, spec.windows)
        outputs = self._predict(self._batch(windows))
        found = extract_answers(
            windows,
            {name: value.numpy() for name, value in outputs.items()},
            head=spec.head,
            n_best_size=spec.n_best_size,
            max_answer_length=spec.max_answer_length,
            compat=spec.compat,
        )
        best = found.nbest[asked.id][0]
        answerable = spec.version == "1.1" or found.null_odds[asked.id] <= self.threshold
        return FoundAnswer(
            best["text"], best["probability"], best["start"], best["end"], answerable
        )

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
