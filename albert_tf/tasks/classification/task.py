# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextClassificationTask: classification of texts and pairs of texts, and regression on them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import Sequences
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.tasks.classification.labels import label_values, loss_weights, own_labels
from albert_tf.tasks.classification.metrics import (
    best_thresholds,
    classification_metrics,
    multi_label_metrics,
    regression_metrics,
)
from albert_tf.tasks.classification.spec import MEAN, SMALLER_IS_BETTER, ClassificationSpec
from albert_tf.tasks.fine_tuning_task import ChoiceTask, ExampleSet, logits_of
from albert_tf.tasks.tables import TextExample, write_table
from albert_tf.tasks.windows import text_windows
from albert_tf.tokenization.sequences import join_segments
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Metrics, Tensors
from albert_tf.weights.run_folder import RunFolder

#: Labels in the summary of a data set.
_SHOWN_LABELS = 5


@dataclasses.dataclass(eq=False)
class TextSet(ExampleSet):
    """Texts or pairs of texts.

    Attributes:
      labels: of the texts, see `label_values`.
      texts: the number of each window's text, int64 [W], if some texts are cut into several.
    """

    labels: np.ndarray | None = None
    texts: np.ndarray | None = None


class TextClassificationTask(ChoiceTask):
    """Classifies with a linear layer on the pooled output.

    The loss is the cross-entropy, of several labels per text the mean of each one's binary
    cross-entropy, and for regression the squared error.
    """

    name = "text_classification"
    spec_class = ClassificationSpec
    form = "albert_tf.tasks.classification.export.ClassifierForm"

    @property
    def best_metric_larger_is_better(self) -> bool:
        """See Task."""
        return self.best_metric not in SMALLER_IS_BETTER

    @property
    def best_metric(self) -> str:
        """See ClassificationSpec."""
        return self.spec.best_metric or self.spec.metrics[0]

    @property
    def constant_answers(self) -> dict[str, str]:
        """See Task."""
        larger = self.best_metric_larger_is_better
        return {self.best_metric: f"majority_{self.best_metric}"} if larger else {}

    @property
    def threshold_names(self) -> Sequence[str]:
        """See FineTuningTask: of several labels per text, each has a threshold."""
        return self.spec.names if self.spec.multi_label else ()

    def chosen(self, probabilities: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
        """Returns which probabilities of several labels, [n, labels], are above their thresholds.

        Without an evaluation, these are 0.5.
        """
        kept = self.thresholds or {}
        return probabilities > np.float32([kept.get(name, 0.5) for name in self.spec.names])

    def encode(
        self, examples: Sequence[TextExample], *, labelled: bool = True, training: bool = False
    ) -> TextSet:
        """See FineTuningTask. Makes [CLS] A [SEP] of texts and [CLS] A [SEP] B [SEP] of pairs.

        An empty second text counts as none. For longer texts see `text_windows`; without a
        `doc_stride`, there is only the first window.
        Source: google-research/albert classifier_utils.convert_single_example.
        """
        spec, labels = self.spec, self.spec.labels
        # The labels are checked before the texts are tokenized.
        values = label_values(examples if labelled else (), labels, spec.multi_label)
        if not labelled:  # One graph evaluates and predicts: its batches have the same columns.
            values = np.zeros([len(examples), *values.shape[1:]], values.dtype)
        texts, sequences, is_cut = [], [], {}
        for chunk in self.tokenized([(x.text, x.text_pair or "") for x in examples]):
            lengths = (np.array([*map(len, ids)]) for ids in zip(*chunk))
            with tf.device("CPU"):
                windows = text_windows(*lengths, spec)
            begin = len(is_cut)
            for row, (i, j), (k, m) in zip(*(x.numpy().tolist() for x in windows)):
                a, b = chunk[row]
                texts.append(begin + row)
                sequences.append((join_segments(self.tokenizer, a[i:j], b[k:m] or None), j - i + 2))
                is_cut[begin + row] = j + m < len(a) + len(b)  # The last window decides.
        columns = {"label_ids": values if labels else (values - spec.mean) / spec.deviation}
        is_windowed = len(texts) > len(examples)
        if training and (spec.class_weights or is_windowed):
            weights = loss_weights(values, spec) if spec.class_weights else np.ones(values.shape)
            number = np.bincount(texts)
            columns["loss_weights"] = (weights.T * (number.mean() / number)).T
        columns = {name: column[texts] for name, column in columns.items()}
        data = Sequences(sequences, self.tokenizer.pad_id, columns)
        summary = f"{len(examples):,} examples, "
        summary += f"{len(texts):,} windows, " if is_windowed else ""
        summary += f"{data.mean_length:.0f} tokens on average"
        if labelled and labels:
            counts = collections.Counter(label for x in examples for label in own_labels(x))
            counts = counts.most_common(_SHOWN_LABELS)
            shares = (f"{label} {count / len(examples):.1%}" for label, count in counts)
            summary += f"; labels {', '.join(shares)}"
            summary += " …" if len(labels) > len(counts) else ""
        elif labelled:
            summary += f"; labels {values.mean():.3g} on average, deviation {values.std():.3g}"
        return TextSet(
            examples,
            data,
            summary,
            notes=self.cut_notes(sum(is_cut.values())),
            labels=values,
            texts=np.array(texts) if is_windowed else None,
        )

    def write_predictions(self, data: TextSet, outputs: Arrays, folder: RunFolder) -> None:
        """See `write_table`."""
        (values,) = self.of_texts(data, outputs).values()
        chosen = self.chosen(values) if self.spec.multi_label else None
        write_table(folder, data.name, data.examples, values, self.spec.labels, chosen)

    def write_evaluation(
        self, data: TextSet, outputs: Arrays, results: Metrics, folder: RunFolder
    ) -> None:
        """See FineTuningTask: keeps the thresholds."""
        if self.spec.multi_label:
            probabilities = self.of_texts(data, outputs)["probabilities"]
            found = best_thresholds(probabilities, data.labels)
            self.keep_thresholds(dict(zip(self.spec.names, found.tolist())), folder)

    def build_model(self, dtype: str = FLOAT32) -> AlbertClassifier:
        """Builds the encoder with a classification head."""
        return AlbertClassifier(self.config, len(self.spec.labels) or 1, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """See ChoiceTask; without the accuracy for several labels, and for regression."""
        if self.spec.labels and not self.spec.multi_label:
            return super().sums(model, batch, training)
        logits, labels = logits_of(model, batch, training), batch["label_ids"]
        weights = batch.get("loss_weights", 1.0)
        if not self.spec.labels:
            return {"loss": tf.reduce_sum(tf.square(logits[:, 0] - labels) * weights)}
        labels = tf.cast(labels, logits.dtype)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits) * weights
        return {"loss": tf.reduce_sum(tf.reduce_mean(losses, axis=1))}

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns `answers`; and of windows also their `logits` [batch, labels]."""
        logits = logits_of(model, batch)
        return {**self.answers(logits), **({"logits": logits} if self.spec.doc_stride else {})}

    def answers(self, logits: tf.Tensor) -> Tensors:
        """Returns `probabilities` [n, labels], or for regression `value` [n]."""
        if not self.spec.labels:
            return {"value": logits[:, 0] * self.spec.deviation + self.spec.mean}
        to_probabilities = tf.sigmoid if self.spec.multi_label else tf.nn.softmax
        return {"probabilities": to_probabilities(logits)}

    def pooled(self, logits: tf.Tensor, texts: tf.Tensor) -> Tensors:
        """Returns `answers` to texts, given the logits of windows and each one's text, [W]."""
        is_mean = self.spec.window_pooling == MEAN
        pool = tf.math.segment_mean if is_mean else tf.math.segment_max
        return self.answers(pool(logits, texts))

    def of_texts(self, data: TextSet, outputs: Arrays) -> Arrays:
        """Returns `answers` to the texts of a data set, given the outputs of `predict`."""
        if data.texts is None:
            return {name: values for name, values in outputs.items() if name != "logits"}
        with tf.device("CPU"):
            answers = self.pooled(outputs["logits"], data.texts)
        return {name: values.numpy() for name, values in answers.items()}

    def metrics(self, outputs: Arrays, examples: TextSet) -> Metrics:
        """See `classification_metrics`, `multi_label_metrics` and `regression_metrics`.

        Without thresholds, those are used that are best for these examples.
        """
        spec, labels, outputs = self.spec, examples.labels, self.of_texts(examples, outputs)
        if not spec.labels:
            return regression_metrics(outputs["value"], labels, spec.deviation)
        probabilities = outputs["probabilities"]
        if not spec.multi_label:
            return classification_metrics(probabilities, labels, spec.positive)
        chosen = self.chosen(probabilities)
        if self.thresholds is None:
            chosen = probabilities > best_thresholds(probabilities, labels)
        return multi_label_metrics(probabilities, chosen, labels)
