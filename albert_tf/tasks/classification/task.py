# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextClassificationTask: classification of texts and pairs of texts, and regression on them."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.log import log
from albert_tf.io.text_tables import Label, label_text
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.tasks.base import ExampleSet, FineTuningTask, choice_loss, choice_sums, logits_of
from albert_tf.tasks.classification.spec import (
    LARGEST,
    SMALLER_IS_BETTER,
    ClassificationSpec,
    are_numbers,
)
from albert_tf.tasks.prediction_tables import PREDICTIONS, PREDICTIONS_FILE, write_predictions
from albert_tf.tasks.texts import TextExample
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH, join_segments, truncated_lengths
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Tensors
from albert_tf.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from albert_tf.export.saved_model import Export, Outputs

#: Texts tokenized together.
_CHUNK = 2048
#: The least standard deviation of numbers to predict, as a share of their mean: predictions are
#: float32 and then exact to less than a hundredth of it.
_LEAST_DEVIATION = 1e-5
#: Labels in the summary of a data set.
_SHOWN_LABELS = 5


class TextClassificationTask(FineTuningTask):
    """Classifies with a linear layer on the pooled output.

    The loss is the cross-entropy, or the squared error for regression.
    """

    name = "text_classification"
    spec_class = ClassificationSpec

    @property
    def best_metric_larger_is_better(self) -> bool:
        """See Task."""
        return self.best_metric not in SMALLER_IS_BETTER

    @property
    def best_metric(self) -> str:
        """See ClassificationSpec."""
        return self.spec.best_metric or ("accuracy" if self.spec.labels else "pearson")

    @property
    def constant_answers(self) -> dict[str, str]:
        """See Task."""
        larger = self.best_metric_larger_is_better
        return {self.best_metric: f"majority_{self.best_metric}"} if larger else {}

    def encode(
        self, examples: Sequence[TextExample], *, labelled: bool = True, training: bool = False
    ) -> ExampleSet:
        """See FineTuningTask. Makes [CLS] A [SEP] of texts and [CLS] A [SEP] B [SEP] of pairs.

        An empty second text counts as none. Longer texts are cut, see `truncated_lengths`.
        Source: google-research/albert classifier_utils.convert_single_example.
        """
        labels, longest = self.spec.labels, self.spec.max_seq_length
        if longest < MIN_SEQ_LENGTH:
            raise AlbertError(f"`max_seq_length`={longest} must be at least {MIN_SEQ_LENGTH}.")
        # The labels are checked before the texts are tokenized.
        values = label_values(examples if labelled else (), labels)
        if not labelled:  # One graph evaluates and predicts: its batches have the same columns.
            values = np.zeros(len(examples), values.dtype)
        sizes: list[int] = []

        def sequences() -> Iterator[tuple[np.ndarray, int]]:
            for begin in range(0, len(examples), _CHUNK):
                chunk = examples[begin : begin + _CHUNK]
                first = self.tokenizer.encode_batch([x.text for x in chunk])
                second = self.tokenizer.encode_batch([x.text_pair or "" for x in chunk])
                for a, b in zip(first, second):
                    extra = 3 if b else 2
                    sizes.append(len(a) + len(b) + extra)
                    kept_a, kept_b = truncated_lengths(len(a), len(b), longest - extra)
                    b = b[:kept_b] if b else None
                    yield join_segments(self.tokenizer, a[:kept_a], b), kept_a + 2

        targets = values if labels else (values - self.spec.mean) / self.spec.deviation
        columns = {"label_ids": targets}
        if training and self.spec.class_weights:
            columns["loss_weights"] = loss_weights(values, self.spec)
        data = Sequences(sequences(), self.tokenizer.pad_id, columns)
        summary = f"{len(examples):,} examples, {data.mean_length:.0f} tokens on average"
        if labelled and labels:
            counts = collections.Counter(x.label for x in examples).most_common(_SHOWN_LABELS)
            shares = (f"{label} {count / len(examples):.1%}" for label, count in counts)
            summary += f"; labels {', '.join(shares)}"
            summary += " …" if len(labels) > len(counts) else ""
        elif labelled:
            summary += f"; labels {values.mean():.3g} on average, deviation {values.std():.3g}"
        cut = sum(size > longest for size in sizes)
        notes = [f"{cut:,} are longer than {longest} tokens and cut"] if cut else ()
        return ExampleSet(examples, data, summary, notes=notes)

    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.tsv; for a data set of another name, predictions/<name>.tsv.

        Texts without an id are numbered from 0 and repeated there.
        """
        named = PREDICTIONS, f"{data.name}.tsv"
        path = folder.file(*([PREDICTIONS_FILE] if data.name == "predict" else named))
        ids, (values,), texts = [example.id for example in data.examples], outputs.values(), {}
        if None in ids:
            ids = [*map(str, range(len(ids)))]
            texts["text"] = [example.text for example in data.examples]
            if self.spec.columns.text_pair:
                texts["second_text"] = [example.text_pair or "" for example in data.examples]
        write_predictions(path, ids, values, self.spec.labels, texts)
        log.info(f"Predictions for {len(data.examples):,} examples are in {path}.")

    def export(self, model: AlbertClassifier) -> Export:
        """See albert_tf.tasks.classification.export."""
        from albert_tf.tasks.classification.export import classifier_export

        return classifier_export(self, model)

    def export_ids(self, model: AlbertClassifier) -> tuple[str, Outputs, tuple[str, ...]]:
        """See albert_tf.tasks.classification.export."""
        from albert_tf.tasks.classification.export import KIND

        labels = tuple(map(label_text, self.spec.labels))
        return KIND.title, lambda inputs, _: self.predict(model, inputs), labels

    def order_of_outputs(self, theirs: Mapping[str, Any]) -> list[int] | None:
        """See FineTuningTask; numbers must have the same mean and deviation."""
        scale = theirs.get("mean", 0.0), theirs.get("deviation", 1.0)
        same = scale == (self.spec.mean, self.spec.deviation)
        return super().order_of_outputs(theirs) if same else None

    def build_model(self, dtype: str = FLOAT32) -> AlbertClassifier:
        """Builds the encoder with a classification head."""
        return AlbertClassifier(self.config, len(self.spec.labels) or 1, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Sums the loss and the correct answers, or for regression the loss in the labels' unit."""
        logits, labels = logits_of(model, batch, training), batch["label_ids"]
        if self.spec.labels:
            return choice_sums(logits, labels, batch.get("loss_weights"))
        loss = tf.reduce_sum(tf.square(logits[:, 0] - labels))
        return {"loss": loss, "mse": loss * self.spec.deviation**2}

    def progress(self, means: Mapping[str, float]) -> str:
        """Formats the loss, and the accuracy or the loss in the labels' unit."""
        text = super().progress(means)
        return text if self.spec.labels else f"{text} mse {means['mse']:.4g}"

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns `probabilities` [batch, labels], or `value` [batch] for regression."""
        logits = logits_of(model, batch)
        if self.spec.labels:
            return {"probabilities": tf.nn.softmax(logits)}
        return {"value": logits[:, 0] * self.spec.deviation + self.spec.mean}

    def metrics(self, outputs: Arrays, examples: ExampleSet) -> dict[str, float]:
        """See `classification_metrics` and `regression_metrics`."""
        labels = label_values(examples.examples, self.spec.labels)
        if self.spec.labels:
            positive = self.spec.positive_label
            positive = None if positive is None else self.spec.names.index(positive)
            return classification_metrics(outputs["probabilities"], labels, positive)
        return regression_metrics(outputs["value"], labels, self.spec.deviation)


def with_labels(examples: Sequence[TextExample]) -> list[TextExample]:
    """Leaves out training examples without a label, and says how many there are.

    Raises:
      AlbertError: none has a label.
    """
    kept = [example for example in examples if example.label is not None]
    if not kept:
        _given_label(examples[0])
    if missing := len(examples) - len(kept):
        log.info(f"train: {missing:,} of {len(examples):,} rows have no label and are left out.")
    return kept


def label_settings(
    examples: Sequence[TextExample], regression: bool, order: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what the labels of training examples decide in a ClassificationSpec.

    For `order` see `label_set`.

    Raises:
      AlbertError: see `label_set` and `label_values`; or the numbers of a regression do not differ.
    """
    if not regression:
        return {"labels": label_set(examples, order)}
    values = label_values(examples, ())
    # The sums are exact, so that a run is found again on any machine.
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((values - mean) ** 2) / len(values))
    if not deviation > _LEAST_DEVIATION * abs(mean):
        raise AlbertError(
            f"The labels of the training examples ({len(examples):,}) are all {mean:g}, or differ "
            "too little from it; a regression needs numbers that differ."
        )
    return {"labels": (), "mean": mean, "deviation": deviation}


def label_set(examples: Sequence[TextExample], order: Sequence[str] = ()) -> tuple[Label, ...]:
    """Returns the distinct labels: numbers by value, texts in this `order` or else sorted.

    Labels of several types, and numbers that are written in several ways, become texts.

    Raises:
      AlbertError: a label is missing, or there are fewer than two labels.
    """
    by_text = {label_text(_given_label(example)): example.label for example in examples}
    if len(by_text) < 2:
        raise AlbertError(
            f"The training examples ({len(examples):,}) all have the label "
            f"{short_repr(*by_text.values())}; at least two labels are needed."
        )
    if are_numbers(labels := [*by_text.values()]):
        return tuple(sorted(labels))
    return tuple(sorted(by_text, key=lambda x: (order.index(x) if x in order else -1, x)))


def _given_label(example: TextExample) -> Label:
    if example.label is None:
        raise AlbertError(f"{example.where}: the label is missing.")
    return example.label


def label_values(examples: Sequence[TextExample], labels: Sequence[Label]) -> np.ndarray:
    """Returns labels as indices into `labels`, int32 [n]; without `labels` as float64 [n].

    A label is found by how it is written, or else a number by its value.

    Raises:
      AlbertError: a label is missing or not in `labels`, or is not a number that can be trained on.
    """
    index: dict[Label, int] = {label: i for i, label in enumerate(labels)}
    index |= {label_text(label): i for label, i in index.items()}
    problem = f"is not a number from {-LARGEST:g} to {LARGEST:g}"
    if labels:
        problem = f"does not occur in the training data, which has {joined(labels)}"
    values = []
    for example in examples:
        label = _given_label(example)
        text = label_text(label)
        try:
            values.append(index.get(text, index.get(label)) if labels else float(text))
        except ValueError:
            values.append(None)
        if values[-1] is None or not abs(values[-1]) <= LARGEST:
            raise AlbertError(f"{example.where}: the label {short_repr(label)} {problem}.")
    return np.array(values, np.int32 if labels else np.float64)


def loss_weights(labels: np.ndarray, spec: ClassificationSpec) -> np.ndarray:
    """Returns the weights of examples in the loss, float32 [n], given their labels, int32 [n].

    Their mean is 1, so that the loss keeps its scale; see `ClassificationSpec.class_weights`.
    """
    if given := spec.weights_by_label():
        weights = np.array([given.get(name, 1.0) for name in spec.names])[labels]
    else:  # Balanced.
        weights = 1 / np.bincount(labels)[labels]
    return (weights / weights.mean()).astype(np.float32)


def classification_metrics(
    probabilities: np.ndarray, labels: np.ndarray, positive: int | None = None
) -> dict[str, float]:
    """Computes metrics of single-label classification.

    Args:
      probabilities: float [n, number of labels].
      labels: int [n].
      positive: the label that precision, recall and f1 are of.

    Returns:
      `loss` (mean negative log-likelihood), `accuracy`, `macro_f1` (the mean of the classes that
      occur in `labels` or are predicted), `majority_accuracy` (that of always predicting the most
      frequent label in `labels`); and for two labels `f1` of the second one and `matthews_corr`,
      which is 0 if all predictions or all labels are the same. With `positive`, `f1`, `precision`
      and `recall` are of that label.
    """
    from sklearn import metrics

    predictions = probabilities.argmax(axis=-1)
    result = {
        "loss": choice_loss(probabilities, labels),
        "accuracy": metrics.accuracy_score(labels, predictions),
        "macro_f1": metrics.f1_score(labels, predictions, average="macro", zero_division=0),
        "majority_accuracy": np.bincount(labels).max() / len(labels),
    }
    if probabilities.shape[-1] == 2 or positive is not None:
        name = 1 if positive is None else positive
        truth, found = labels == name, predictions == name
        result["f1"] = metrics.f1_score(truth, found, zero_division=0)
        if positive is not None:
            result["precision"] = metrics.precision_score(truth, found, zero_division=0)
            result["recall"] = metrics.recall_score(truth, found, zero_division=0)
    if probabilities.shape[-1] == 2:
        # For a single label it is undefined; scikit-learn would return 0 with a warning.
        single = len(np.unique(np.concatenate([labels, predictions]))) == 1
        result["matthews_corr"] = 0.0 if single else metrics.matthews_corrcoef(labels, predictions)
    return {name: float(value) for name, value in result.items()}


def regression_metrics(
    predictions: np.ndarray, labels: np.ndarray, deviation: float = 1.0
) -> dict[str, float]:
    """Computes metrics of regression from float [n] predictions and labels.

    Returns:
      `pearson` and `spearman` (0 where undefined, as for constant predictions), `mse`,
      `mean_answer_mse` (that of always predicting the mean of `labels`), and `loss`, which is the
      `mse` of labels that were divided by `deviation`.
    """
    from scipy import stats

    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)
    pearson = spearman = 0.0
    if np.isfinite(predictions).all() and np.ptp(predictions) > 0 and np.ptp(labels) > 0:
        pearson = float(stats.pearsonr(predictions, labels).statistic)
        spearman = float(stats.spearmanr(predictions, labels).statistic)
    mse, constant = float(np.mean((predictions - labels) ** 2)), float(labels.var())
    result = {"pearson": pearson, "spearman": spearman, "mse": mse, "mean_answer_mse": constant}
    return {**result, "loss": mse / deviation**2}
