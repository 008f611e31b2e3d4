# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice as a task: softmax over the options, accuracy by group."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.modeling.classifier import AlbertMultipleChoice
from albert_tf.tasks.fine_tuning_task import ChoiceTask, ExampleSet, choice_loss
from albert_tf.tasks.multiple_choice.data import (
    EVAL_BATCH_SIZE,
    LETTERS,
    RACE_GROUPS,
    MultipleChoiceExample,
    MultipleChoiceSpec,
    read_questions,
)
from albert_tf.tasks.tables import write_table
from albert_tf.training.monitors import print_metrics
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Metrics, floats
from albert_tf.weights.run_folder import RunFolder


def option_text(question: str, option: str) -> str:
    """Joins a question and an option to one text.

    The option replaces every blank of the question, a run of underscores; without a blank it
    follows the question. The release replaces each underscore, so that "____" becomes four times
    the option (google-research/albert race_utils.convert_single_example); for blanks of a single
    underscore, as in RACE, the result is the same.
    """
    if "_" in question:
        return re.sub("_+", lambda _: option, question)
    return f"{question} {option}" if question else option


class MultipleChoiceTask(ChoiceTask):
    """One encoder scores each option; cross-entropy of the softmax over the options.

    The model cannot tell the options' letters apart, so the baseline is chance.
    """

    name = "multiple_choice"
    spec_class = MultipleChoiceSpec
    form = "albert_tf.tasks.multiple_choice.export.ChoiceForm"
    recipe = "race"
    read = staticmethod(read_questions)
    best_metric = "accuracy"
    #: Four options each are 64 sequences, as in other tasks.
    eval_batch_size = EVAL_BATCH_SIZE
    constant_answers: ClassVar = {"accuracy": "chance_accuracy"}

    def encode(
        self,
        examples: Sequence[MultipleChoiceExample],
        *,
        labelled: bool = True,
        training: bool = False,
    ) -> ExampleSet:
        """See FineTuningTask. Makes [CLS] text [SEP] question and option [SEP] of every option.

        Question and option keep their last `max_qa_length` tokens; the text keeps its first tokens,
        up to `max_seq_length` (google-research/albert race_utils.convert_single_example). Labels
        become `label_ids`, -1 without one.
        """
        for example in examples if labelled else ():
            if example.label is None:
                raise AlbertError(
                    f"{example.where}: the answer is missing; training and evaluation need it."
                )
        spec, choices = self.spec, len(examples[0].options)

        def cut(text, end) -> tuple[list[int], list[int]]:
            end = end[-spec.max_qa_length :]
            return text[: spec.max_seq_length - 3 - len(end)], end

        labels = [-1 if example.label is None else example.label for example in examples]
        pairs = [
            (x.context, option_text(x.question, option)) for x in examples for option in x.options
        ]
        data, notes = self.join(pairs, cut, {"label_ids": np.array(labels)}, choices)
        contexts = len({example.context for example in examples})
        summary = (
            f"{len(examples):,} questions about {contexts:,} texts, {choices} options each, "
            f"{data.mean_length:.0f} tokens on average"
        )
        return ExampleSet(examples, data, summary, notes=notes)

    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.tsv, and predict_results.json: {} if a question has no label."""
        examples, probabilities = data.examples, outputs["probabilities"]
        letters = LETTERS[: probabilities.shape[1]]
        write_table(folder, data.name, examples, probabilities, letters)
        labelled = all(example.label is not None for example in examples)
        results = self.metrics(outputs, data) if labelled else {}
        files.write_json(folder.file("predict_results.json"), results)
        if labelled:
            print_metrics(results)

    def build_model(self, dtype: str = FLOAT32) -> AlbertMultipleChoice:
        """Builds the encoder and the head that scores options."""
        return AlbertMultipleChoice(self.config, self.dropout_rate, dtype)

    def metrics(self, outputs: Arrays, examples: ExampleSet) -> Metrics:
        """Returns the metrics of labelled questions, and those of guessing.

        These are `accuracy`, `<group>_accuracy` for each group with questions, `loss` (mean
        negative log-likelihood), `chance_accuracy` and `chance_loss`.
        """
        probabilities, asked = outputs["probabilities"], examples.examples
        labels = np.array([question.label for question in asked])
        groups = np.array([question.group for question in asked])
        right = probabilities.argmax(axis=-1) == labels
        metrics = {"accuracy": right.mean()}
        for group in RACE_GROUPS:
            if (groups == group).any():
                metrics[f"{group}_accuracy"] = right[groups == group].mean()
        metrics["loss"] = choice_loss(probabilities, labels)
        metrics["chance_accuracy"] = 1 / probabilities.shape[1]
        metrics["chance_loss"] = math.log(probabilities.shape[1])
        return floats(metrics)
