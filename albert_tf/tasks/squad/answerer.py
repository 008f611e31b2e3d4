# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""QuestionAnswerer: trained on questions about texts, it answers others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from albert_tf.io.text_tables import data_rows
from albert_tf.tasks.fine_tuned import FineTunedModel, each_of, is_list
from albert_tf.tasks.squad.data import Question, row_questions
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.windows import extract_answers


class FoundAnswer(NamedTuple):
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

    The data to train and evaluate on are questions: files of `read_squad`, or data with the columns
    of `row_questions`: question, context, answers. The setting `version` is "1.1", or "2.0", where
    the context may have no answer; by default 2.0 if a training question has none. For 2.0, an
    evaluation also finds the threshold. The script is run_squad.py.

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

    def answer(
        self, question: str | Sequence[str], context: str | Sequence[str] | None = None
    ) -> FoundAnswer | list[FoundAnswer]:
        """Returns the best answer to a question, or those to several.

        The answer to an empty context is "".

        Args:
          question: a question, or a list of them.
          context: the text that may answer it; a list with the text for each question, or with
            several texts for one.

        Raises:
          AlbertError: an argument is neither a string nor a list, the lists differ in length, or
            more than a tenth of their items are not strings.
        """
        lists = [value for value in (question, context) if is_list(value)]
        size = len(lists[0]) if lists else 1
        if context is None and not size:
            context = ""
        columns = each_of(size, question=question, context=context)
        found = self.answers(row_questions(data_rows(columns, "answer")))
        return found if lists else found[0]

    def answers(self, questions: Sequence[Question]) -> list[FoundAnswer]:
        """Returns the best answer to each question."""
        if not questions:
            return []
        data, outputs = self._outputs_of(questions)
        answers, found = extract_answers(data.asked, outputs, self.task.spec), []
        for name, (best, *_) in answers.nbest.items():
            odds = answers.null_odds.get(name)
            answerable = odds is None or odds <= self.threshold
            place = best["start"], best["end"]
            found.append(FoundAnswer(best["text"], best["probability"], *place, odds, answerable))
        return found
