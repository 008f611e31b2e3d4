# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice as a task: softmax over the options, accuracy by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.keras2 import keras
from albert_tf.modeling.flops import training_flops
from albert_tf.modeling.multiple_choice import AlbertMultipleChoice
from albert_tf.tasks.base import (
    ExampleSet,
    FineTuningTask,
    InputOptions,
    choice_sums,
    model_inputs,
)
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample, check_labelled
from albert_tf.tasks.multiple_choice.features import (
    GROUPS,
    MultipleChoiceSpec,
    build_records,
    record_features,
)
from albert_tf.tasks.multiple_choice.predictions import multiple_choice_metrics, write_outputs
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Batch, rows_to_show

if TYPE_CHECKING:
    from albert_tf.export.saved_model import Export


class MultipleChoiceTask(FineTuningTask):
    """One encoder scores each option; cross-entropy of the softmax over the options.

    The model cannot tell the options' letters apart, so the baseline is chance, 1 of `num_choices`.

    Args:
      config: configuration of the model.
      tokenizer: saved with the model.
      spec: settings of the task.
      dropout_rate: dropout on the pooled outputs.
    """

    name = "multiple_choice"
    spec_class = MultipleChoiceSpec
    best_metric = "accuracy"
    constant_answers: ClassVar = {"accuracy": "chance_accuracy"}

    def training_flops(self, length: float, layers: int | None = None) -> float:
        """Returns the operations for all options; `length` is the sum of their lengths."""
        config, choices = self.config.with_layers(layers), self.spec.num_choices
        return choices * training_flops(config, length / choices, num_read=1)

    def make_records(
        self, examples: Sequence[MultipleChoiceExample], name: str, options: InputOptions
    ) -> ExampleSet:
        """See FineTuningTask. Unlabelled and labelled questions may be mixed for prediction."""
        if options.labelled:
            check_labelled(examples)
        path = build_records(
            options.cache_dir, examples, self.tokenizer, self.spec, options.train_seed
        )
        features = record_features(self.spec.num_choices)
        source = self.open_records(path, features, options)
        summary = _summary(name, self.spec, source.manifest.statistics)
        return ExampleSet(name, examples, source, summary)

    def write_predictions(
        self, data: ExampleSet, outputs: Mapping[str, np.ndarray], output_dir: str
    ) -> None:
        """Writes predictions.tsv and, if all questions are labelled, predict_results.json."""
        write_outputs(data.examples, outputs["probabilities"], output_dir)

    def export(self, model: AlbertMultipleChoice) -> Export:
        """See albert_tf.tasks.multiple_choice.export."""
        from albert_tf.tasks.multiple_choice.export import multiple_choice_export

        return multiple_choice_export(self, model)

    def build_model(self, dtype: str = FLOAT32) -> AlbertMultipleChoice:
        """Builds the encoder and the head that scores options."""
        return AlbertMultipleChoice(self.config, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Returns the summed loss and the number of correct answers."""
        logits = model(model_inputs(batch), training=training)["logits"]
        return choice_sums(logits, batch["label_ids"])

    def predict(self, model: keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns `probabilities` [batch, options], `label_ids` and `group_ids` [batch]."""
        return {
            "probabilities": tf.nn.softmax(model(model_inputs(batch))["logits"]),
            "label_ids": batch["label_ids"],
            "group_ids": batch["group_ids"],
        }

    def metrics(
        self, outputs: Mapping[str, np.ndarray], examples: object = None
    ) -> dict[str, float]:
        """See `multiple_choice_metrics`."""
        return multiple_choice_metrics(**outputs)

    def shown_predictions(
        self, outputs: Mapping[str, np.ndarray], examples: ExampleSet
    ) -> list[dict[str, object]]:
        """Returns texts and questions with their right and their chosen options."""
        rows, values = [], outputs["probabilities"]
        for i in rows_to_show(len(values)):
            example, options = examples.examples[i], examples.examples[i].options
            rows.append(
                {
                    "text": example.context,
                    "question": example.question,
                    "label": "" if example.label is None else options[example.label],
                    "predicted": options[values[i].argmax()],
                    "probability": float(values[i].max()),
                }
            )
        return rows


def _summary(name: str, spec: MultipleChoiceSpec, statistics: Mapping[str, object]) -> str:
    """Returns a line about a data set."""
    line = f"{name}: {statistics['examples']:,} questions"
    counts = statistics["groups"]
    groups = [f"{counts[group]:,} {group}" for group in GROUPS if group and group in counts]
    line += f" ({', '.join(groups)})" if groups else ""
    line += f" about {statistics['contexts']:,} texts, {spec.num_choices} options each, "
    line += f"{statistics['mean_length']:.0f} tokens on average"
    if statistics["truncated"]:
        line += f"; the texts of {statistics['truncated']:,} are cut to {spec.max_seq_length}"
    if statistics["truncated_options"]:
        line += f"; {statistics['truncated_options']:,} options are cut to {spec.max_qa_length}"
    return line
