# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""QuestionAnswerer: trained on questions about texts, it answers others."""

from __future__ import annotations

import dataclasses
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
        return (
            f"{text}\n(probability {self.probability:.3f}, characters {self.start} to {self.end})"
        )


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

        If the output directory holds a run with the same settings and data, it is resumed, or
        loaded if it is complete.

        Args:
          model: what to start from; see `albert_tf.load_pretrained`.
          train: the questions: the path of a SQuAD file, or data in memory, as
            TextClassifier.train takes them, with the columns of `row_questions`: question, context,
            answers.
          eval: questions to evaluate on, in any of these forms; None: no evaluation. For 2.0, it
            also finds the threshold.
          version: "1.1", or "2.0", where the context may have no answer; None: 2.0 if a training
            question has none.
          **settings: `output_dir`, which is required, and other fields of FineTuneConfig
            and SquadSpec. They override the recipe.

        Raises:
          AlbertError: the data, the model or a setting is wrong, or the output directory holds
            another run.
        """
        questions = _read(train, version, "train")
        version = version or version_of(questions)
        SquadSpec(version)  # There is no recipe for an unknown version.
        held_out = () if eval is None else _read(eval, version, "eval")
        spec = {"version": version}
        return cls._train(model, f"squad{version}", questions, held_out, spec, settings)

    def evaluate(self, data: Any) -> dict[str, float]:
        """Returns the metrics for questions with answers, as run_squad.py computes them.

        Args:
          data: as for `train`.

        Raises:
          AlbertError: a question has no answers, or the model is in no folder.
        """
        return self._evaluate(_read(data, self.task.spec.version, "eval"))

    def answer(self, question: str, context: str) -> FoundAnswer:
        """Returns the best answer to one question.

        Raises:
          AlbertError: the context has no text, or an argument is not a string.
        """
        checked_text(question, "The question")
        checked_text(context, "The context")
        asked = Question("", question, context, (), False, "The text")
        data = self.task.encode([asked], "new", labelled=False)
        answers = data.answers(data.outputs(self._predict), self.task.spec)
        ((best, *_),), odds = answers.nbest.values(), answers.null_odds.get("")
        answerable = odds is None or odds <= self.threshold
        place = best["start"], best["end"]
        return FoundAnswer(best["text"], best["probability"], *place, odds, answerable)


def _read(data: Any, version: str | None, name: str) -> list[Question]:
    """Reads questions from a file or from rows; without a version they may be unanswerable."""
    version = version or "2.0"
    return read_examples(
        data,
        name,
        lambda path: read_squad(path, version=version),
        lambda rows: row_questions(rows, version),
    )
