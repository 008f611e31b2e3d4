# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextClassificationTask: classification of texts and pairs of texts, and regression on them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json
from albert_tf.io.text_tables import TextColumns, TextExample
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.flops import training_flops
from albert_tf.tasks.base import (
    ExampleSet,
    FineTuningTask,
    InputOptions,
    choice_sums,
    model_inputs,
)
from albert_tf.tasks.classification.features import (
    build_records,
    empty_text_warning,
    record_features,
)
from albert_tf.tasks.classification.metrics import classification_metrics, regression_metrics
from albert_tf.tasks.prediction_tables import PREDICTIONS_FILE, write_predictions
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Batch, rows_to_show

if TYPE_CHECKING:
    from albert_tf.export.model_card import Kind
    from albert_tf.export.saved_model import Export, Outputs


@dataclasses.dataclass(frozen=True)
class ClassificationSpec:
    """The settings of a classification or regression task.

    Attributes:
      labels: the classes in the order of the model's outputs; empty for regression.
      max_seq_length: the maximum length of a text in tokens; longer ones are cut.
      columns: the columns of the training file; None for those of the GLUE task.
      task_name: "custom", or the name of a GLUE task.
      best_metric: selects the best weights; None for accuracy, or pearson for regression.
    """

    labels: tuple[str, ...]
    max_seq_length: int
    columns: TextColumns | None = None
    task_name: str = "custom"
    best_metric: str | None = None


class TextClassificationTask(FineTuningTask):
    """Classifies with a linear layer on the pooled output.

    The loss is the cross-entropy, or the squared error for regression.

    Args:
      config: of the model.
      tokenizer: saved with the model.
      spec: labels and length.
      dropout_rate: dropout on the pooled output.
    """

    name = "text_classification"
    spec_class = ClassificationSpec

    def __init__(
        self,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        spec: ClassificationSpec,
        dropout_rate: float = 0.1,
    ) -> None:
        super().__init__(config, tokenizer, spec, dropout_rate)
        self.best_metric = spec.best_metric or ("accuracy" if spec.labels else "pearson")
        self.constant_answers = {self.best_metric: f"majority_{self.best_metric}"}

    @classmethod
    def load(
        cls, folder: str, *, columns: Mapping[str, str] | None = None, **changes: Any
    ) -> TextClassificationTask:
        """See FineTuningTask; `columns` are the fields of TextColumns to override."""
        task = super().load(folder, **changes)
        if columns and task.spec.columns:
            changed = dataclasses.replace(task.spec.columns, **columns)
            task.spec = dataclasses.replace(task.spec, columns=changed)
        return task

    @classmethod
    def read_spec(cls, values: Mapping[str, Any], path: str) -> ClassificationSpec:
        """See FineTuningTask."""
        where = f"{path} does not describe a classifier"
        labels, columns = values.get("labels"), values.get("columns")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise AlbertError(f"{where}: it has no list of labels.")
        columns = from_json(TextColumns, columns, where) if columns else None
        values = {**values, "labels": tuple(labels), "columns": columns}
        return from_json(ClassificationSpec, values, where)

    def make_records(
        self, examples: Sequence[TextExample], name: str, options: InputOptions
    ) -> ExampleSet:
        """See FineTuningTask. Reads labels only if they are needed."""
        labels, max_seq_length = self.spec.labels, self.spec.max_seq_length
        path = build_records(examples, self.tokenizer, max_seq_length, labels, options)
        source = self.open_records(path, record_features(labels), options)
        summary = _summary(name, max_seq_length, source.manifest.statistics)
        if warning := empty_text_warning(examples, name):
            summary += f"\n{warning}"
        return ExampleSet(name, examples, source, summary)

    def write_predictions(
        self, data: ExampleSet, outputs: Mapping[str, np.ndarray], output_dir: str
    ) -> None:
        """Writes predictions.tsv."""
        path = os.path.join(output_dir, PREDICTIONS_FILE)
        values = outputs["probabilities" if self.spec.labels else "values"]
        ids = (example.id for example in data.examples)
        write_predictions(path, ids, values, self.spec.labels)
        print(f"Predictions for {len(data.examples):,} examples are in {path}.")

    def training_flops(self, length: float, layers: int | None = None) -> float:
        """See albert_tf.modeling.flops."""
        return training_flops(self.config.with_layers(layers), length, num_read=1)

    def export(self, model: AlbertClassifier) -> Export:
        """See albert_tf.tasks.classification.export."""
        from albert_tf.tasks.classification.export import classifier_export

        return classifier_export(self, model)

    def export_ids(self, model: AlbertClassifier) -> tuple[Kind, Outputs, tuple[str, ...]]:
        """See albert_tf.tasks.classification.export."""
        from albert_tf.tasks.classification.export import KIND, classifier_outputs

        return KIND, classifier_outputs(self, model), self.spec.labels

    def build_model(self, dtype: str = FLOAT32) -> AlbertClassifier:
        """Builds the encoder with a classification head."""
        return AlbertClassifier(self.config, len(self.spec.labels) or 1, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Sums the loss and, for classification, the correct answers."""
        logits, labels = _logits(model, batch, training), batch["label_ids"]
        if not self.spec.labels:
            return {"loss": tf.reduce_sum(tf.square(logits[:, 0] - labels))}
        return choice_sums(logits, labels)

    def predict(self, model: keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns `label_ids` [batch] with `probabilities` [batch, labels], or `values` [batch]."""
        logits = _logits(model, batch, training=False)
        if self.spec.labels:
            return {"probabilities": tf.nn.softmax(logits), "label_ids": batch["label_ids"]}
        return {"values": logits[:, 0], "label_ids": batch["label_ids"]}

    def metrics(
        self, outputs: Mapping[str, np.ndarray], examples: object = None
    ) -> dict[str, float]:
        """See albert_tf.tasks.classification.metrics."""
        if self.spec.labels:
            return classification_metrics(outputs["probabilities"], outputs["label_ids"])
        return regression_metrics(outputs["values"], outputs["label_ids"])

    def shown_predictions(
        self, outputs: Mapping[str, np.ndarray], examples: ExampleSet
    ) -> list[dict[str, object]]:
        """Returns texts with their labels and predictions."""
        labels, rows = self.spec.labels, []
        values = outputs["probabilities" if labels else "values"]
        for i in rows_to_show(len(values)):
            example, value = examples.examples[i], values[i]
            pair = {} if example.text_pair is None else {"second text": example.text_pair}
            row = {"text": example.text, **pair, "label": example.label}
            if labels:
                best = {"predicted": labels[value.argmax()], "probability": float(value.max())}
            else:
                best = {"predicted": float(value)}
            rows.append({**row, **best})
        return rows


def _logits(model: keras.Model, batch: Batch, training: bool) -> tf.Tensor:
    return model(model_inputs(batch), training=training)["logits"]


def _summary(name: str, max_seq_length: int, statistics: Mapping[str, object]) -> str:
    """Returns a line that describes a data set."""
    examples = statistics["examples"]
    line = f"{name}: {examples:,} examples, {statistics['mean_length']:.0f} tokens on average"
    if statistics["truncated"]:
        line += f"; {statistics['truncated']:,} are longer than {max_seq_length} tokens and cut"
    if "mean" in statistics.get("labels", {}):
        line += f"; labels {statistics['labels']['mean']:.3g} on average"
    elif statistics.get("labels"):
        shares = {k: v / examples for k, v in statistics["labels"].items()}
        most = sorted(shares, key=shares.get, reverse=True)[:5]
        line += "; labels " + ", ".join(f"{label} {shares[label]:.1%}" for label in most)
        line += " …" if len(shares) > len(most) else ""
    return line
