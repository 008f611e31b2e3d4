# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""MultipleChoice: trained on questions with options, it chooses among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from albert_tf.io.text_tables import data_rows
from albert_tf.tasks.fine_tuned import FineTunedModel, each_of, is_list
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample, row_questions
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask


class Choice(NamedTuple):
    """The chosen option.

    `index` is its number, from 0; the probabilities are those of all options.
    """

    option: str
    index: int
    probabilities: tuple[float, ...]


class MultipleChoice(FineTunedModel):
    """Chooses among the answers to a question. `train` and `load` create it.

    The data to train and evaluate on are questions, with the columns of `read_questions`: options,
    label or answer, context, question and id. The script is run_race.py.

    Example:
      model = MultipleChoice.load("runs/race")
      model.choose(["red", "green"], question="Ada's kite is _ .", context="Ada has a red kite.")
    """

    task_class = MultipleChoiceTask

    def choose(
        self,
        options: Sequence[str] | Sequence[Sequence[str]],
        question: str | Sequence[str] = "",
        context: str | Sequence[str] = "",
    ) -> Choice | list[Choice]:
        """Returns the most probable option, or those of several questions.

        Args:
          options: 2 to 26; their number may differ from that of the training. Or a list of such
            lists of one length, one for each question.
          question: the question, perhaps with a blank "_", or the beginning of a sentence; or a
            list of them.
          context: the text that it is about, or a list with that of each question.

        Raises:
          AlbertError: there are too few or too many options, an argument is not a text or a list of
            them, or the lists differ in length.
        """
        several = is_list(options) and all(map(is_list, options))
        options = options if several else [options]
        texts = each_of(len(options), question=question, context=context)
        chosen = self.choices(row_questions(data_rows({"options": options, **texts}, "choose")))
        return chosen if several else chosen[0]

    def choices(self, examples: Sequence[MultipleChoiceExample]) -> list[Choice]:
        """Returns the most probable option of each question."""
        chosen = []
        outputs = self._outputs_of(examples)[1]["probabilities"] if examples else ()
        for example, probabilities in zip(examples, outputs):
            best = int(probabilities.argmax())
            chosen.append(Choice(example.options[best], best, tuple(probabilities.tolist())))
        return chosen
