# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice as a task: softmax over the options, accuracy by group."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.log import log
from albert_tf.io.progress import Progress
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertMultipleChoice
from albert_tf.tasks.base import ExampleSet, FineTuningTask, choice_loss, choice_sums, logits_of
from albert_tf.tasks.multiple_choice.data import (
    EVAL_BATCH_SIZE,
    RACE_GROUPS,
    MultipleChoiceExample,
    MultipleChoiceSpec,
    letter,
)
from albert_tf.tasks.prediction_tables import PREDICTIONS_FILE, write_predictions
from albert_tf.tokenization.sequences import join_segments
from albert_tf.training.monitors import print_metrics
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Tensors
from albert_tf.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from albert_tf.export.saved_model import Export

#: Questions and texts tokenized together.
_CHUNK = 512


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


class MultipleChoiceTask(FineTuningTask):
    """One encoder scores each option; cross-entropy of the softmax over the options.

    The model cannot tell the options' letters apart, so the baseline is chance.
    """

    name = "multiple_choice"
    spec_class = MultipleChoiceSpec
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
        tokenizer, spec = self.tokenizer, self.spec
        choices = len(examples[0].options)
        texts: dict[str, np.ndarray] = {}
        cut_texts, cut_options = set(), 0

        def sequences() -> Iterator[tuple[np.ndarray, int]]:
            nonlocal cut_options
            for begin in range(0, len(examples), _CHUNK):
                chunk = examples[begin : begin + _CHUNK]
                # Every text is tokenized once, however many questions and options share it.
                new = list(dict.fromkeys(x.context for x in chunk if x.context not in texts))
                ids = (np.array(row, np.int32) for row in tokenizer.encode_batch(new))
                texts.update(zip(new, ids))
                asked = [option_text(x.question, option) for x in chunk for option in x.options]
                for row, end in enumerate(tokenizer.encode_batch(asked)):
                    text = texts[chunk[row // choices].context]
                    cut_options += len(end) > spec.max_qa_length
                    end = end[-spec.max_qa_length :]
                    kept = text[: spec.max_seq_length - 3 - len(end)]
                    if len(kept) < len(text):
                        cut_texts.add(begin + row // choices)
                    yield join_segments(tokenizer, kept, end), len(kept) + 2
                progress.update(len(chunk))

        labels = [-1 if example.label is None else example.label for example in examples]
        columns = {"label_ids": np.array(labels)}
        silent = len(examples) <= _CHUNK
        with Progress("tokenizing", len(examples), "questions", silent=silent) as progress:
            data = Sequences(sequences(), tokenizer.pad_id, columns, group=choices)
        groups = collections.Counter(example.group for example in examples)
        counts = [f"{groups[group]:,} {group}" for group in RACE_GROUPS if groups[group]]
        summary = f"{len(examples):,} questions"
        summary += f" ({', '.join(counts)})" if counts else ""
        summary += f" about {len(texts):,} texts, {choices} options each, "
        summary += f"{data.mean_length:.0f} tokens on average"
        notes = []
        if cut_texts:
            notes.append(f"the texts of {len(cut_texts):,} are cut to {spec.max_seq_length} tokens")
        if cut_options:
            notes.append(f"{cut_options:,} options are cut to {spec.max_qa_length} tokens")
        return ExampleSet(examples, data, summary, notes=notes)

    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.tsv, and predict_results.json: {} if a question has no label."""
        examples, path = data.examples, folder.file(PREDICTIONS_FILE)
        letters = [letter(i) for i in range(len(examples[0].options))]
        ids = (example.id for example in examples)
        write_predictions(path, ids, outputs["probabilities"], letters)
        log.info(f"Predictions for {len(examples):,} questions are in {path}.")
        labelled = all(example.label is not None for example in examples)
        results = self.metrics(outputs, data) if labelled else {}
        files.write_json(folder.file("predict_results.json"), results)
        if labelled:
            print_metrics(results)

    def export(self, model: AlbertMultipleChoice) -> Export:
        """See albert_tf.tasks.multiple_choice.export."""
        from albert_tf.tasks.multiple_choice.export import multiple_choice_export

        return multiple_choice_export(self, model)

    def build_model(self, dtype: str = FLOAT32) -> AlbertMultipleChoice:
        """Builds the encoder and the head that scores options."""
        return AlbertMultipleChoice(self.config, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Returns the summed loss and the number of correct answers."""
        return choice_sums(logits_of(model, batch, training), batch["label_ids"])

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns `probabilities` [batch, options]."""
        return {"probabilities": tf.nn.softmax(logits_of(model, batch))}

    def metrics(self, outputs: Arrays, examples: ExampleSet) -> dict[str, float]:
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
        return {name: float(value) for name, value in metrics.items()}
