# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""QuestionAnswerer: trained on questions about texts, it answers others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from albert_tf.io.text_tables import read_examples
from albert_tf.tasks.fine_tuned import FineTunedModel
from albert_tf.tasks.squad.data import Question, SquadSpec, read_squad, row_questions, version_of
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tokenization.tokenizer import checked_text


@dataclasses.dataclass(frozen=True)
class FoundAnswer:
    """An answer in its context.

    Attributes:
      text: the best answer, also if the question counts as unanswerable; "" if the model proposes
        none that is possible.
      probability: probability of this answer among the best ones.
      start, end: its characters [start, end) in the context.
      null_odds: a logit: the larger, the more likely the question is unanswerable; None for 1.1.
      answerable: whether the context answers the question according to the model; always true for
        SQuAD 1.1.
    """

    text: str
    probability: float
    start: int
    end: int
    null_odds: float | None
    answerable: bool = True

    def summary(self) -> str:
        """Returns two lines for a terminal: the answer; its probability and place."""
        text = self.text if self.answerable else f"The text has no answer. Best guess: {self.text}"
        place = f"characters {self.start} to {self.end}"
        return f"{text}\n(probability {self.probability:.3f}, {place})"


class QuestionAnswerer(FineTunedModel):
    """Answers questions about texts. `train` and `load` create it.

    Example:
      answerer = QuestionAnswerer.load("runs/squad")
      answerer.answer("Who wrote it?", "It was written by Ada Lovelace in 1843.").text
    """

    task_class = SquadTask

    @property
    def threshold(self) -> float | None:
        """Null odds above which a question counts as unanswerable; None for 1.1. May be set."""
        return self.task.answer_threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        self.task.use_threshold(value)

    @classmethod
    def train(
        cls, model: str, train: Any, eval: Any = None, version: str | None = None, **settings: Any
    ) -> QuestionAnswerer:
        """Fine-tunes a pretrained model, with the recipe and the results of run_squad.py.

        As `TextClassifier.train`, except for:

        Args:
          model: what to start from; see `albert_tf.load_pretrained`.
          train, eval: questions: the path of a SQuAD file, or data in memory with the columns of
            `row_questions`: question, context, answers. For 2.0, an evaluation also finds the
            threshold.
          version: "1.1", or "2.0", where the context may have no answer; None: 2.0 if a training
            question has none.
          **settings: also fields of SquadSpec.
        """
        questions = cls._read(train, "train", {"version": version or "2.0"})
        version = version or version_of(questions)
        SquadSpec(version)  # There is no recipe for an unknown version.
        spec = {"version": version}
        return cls._train(model, f"squad{version}", questions, eval, spec, settings)

    @classmethod
    def _read(cls, data: Any, name: str, spec: Mapping[str, Any]) -> list[Question]:
        read = functools.partial(read_squad, version=spec["version"])
        convert = functools.partial(row_questions, version=spec["version"])
        return read_examples(data, name, read, convert)

    def answer(self, question: str, context: str) -> FoundAnswer:
        """Returns the best answer to one question.

        Raises:
          AlbertError: the context has no text, or an argument is not a string.
        """
        checked_text(question, "The question")
        checked_text(context, "The context")
        asked = Question("", question, context, (), False, "The text")
        data = self.task.encode([asked], labelled=False)
        answers = data.answers(data.outputs(self._predict), self.task.spec)
        ((best, *_),), odds = answers.nbest.values(), answers.null_odds.get("")
        answerable = odds is None or odds <= self.threshold
        place = best["start"], best["end"]
        return FoundAnswer(best["text"], best["probability"], *place, odds, answerable)
