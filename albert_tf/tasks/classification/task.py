# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextClassificationTask: classification of texts and pairs of texts, and regression on them."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json, joined, short_repr
from albert_tf.io.log import log
from albert_tf.io.text_tables import TextColumns, TextExample
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.tasks.base import ExampleSet, FineTuningTask, choice_loss, choice_sums, logits_of
from albert_tf.tasks.prediction_tables import PREDICTIONS, PREDICTIONS_FILE, write_predictions
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH, join_segments, truncated_lengths
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Tensors
from albert_tf.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from albert_tf.export.saved_model import Export, Outputs

#: The default columns of tables.
COLUMNS = TextColumns("text", label="label")
#: Texts tokenized together.
_CHUNK = 2048
#: The largest number to predict: its square, which the loss has, is finite in float32.
_LARGEST = 1e18
#: Labels in the summary of a data set.
_SHOWN_LABELS = 5


@dataclasses.dataclass(frozen=True)
class ClassificationSpec:
    """The settings of a classification or regression task.

    Attributes:
      labels: the classes in the order of the model's outputs; empty for regression.
      max_seq_length: the maximum length of a text in tokens; longer ones are cut.
      columns: the columns of the training file.
      task_name: "custom", or the name of a GLUE task.
      best_metric: selects the best weights; None for accuracy, or pearson for regression.
    """

    labels: tuple[str, ...]
    max_seq_length: int
    columns: TextColumns = COLUMNS
    task_name: str = "custom"
    best_metric: str | None = None

    def __post_init__(self) -> None:
        """Checks the labels, and makes columns of JSON values."""
        labels = self.labels
        if not isinstance(labels, tuple) or not all(isinstance(label, str) for label in labels):
            raise AlbertError(f"`labels`={short_repr(labels)} are not texts.")
        if not isinstance(self.columns, TextColumns):
            columns = from_json(TextColumns, self.columns, "`columns`")
            object.__setattr__(self, "columns", columns)


class TextClassificationTask(FineTuningTask):
    """Classifies with a linear layer on the pooled output.

    The loss is the cross-entropy, or the squared error for regression.
    """

    name = "text_classification"
    spec_class = ClassificationSpec

    @property
    def best_metric(self) -> str:
        """See ClassificationSpec."""
        return self.spec.best_metric or ("accuracy" if self.spec.labels else "pearson")

    @property
    def constant_answers(self) -> dict[str, str]:
        """See Task."""
        return {self.best_metric: f"majority_{self.best_metric}"}

    def encode(
        self, examples: Sequence[TextExample], *, labelled: bool = True, training: bool = False
    ) -> ExampleSet:
        """See FineTuningTask. Makes [CLS] A [SEP] of texts and [CLS] A [SEP] B [SEP] of pairs.

        An empty second text counts as none. Longer texts are cut, see `truncated_lengths`.
        Source: google-research/albert classifier_utils.convert_single_example.
        """
        labels, longest = self.spec.labels, self.spec.max_seq_length
        if longest < MIN_SEQ_LENGTH:
            raise AlbertError(f"max_seq_length={longest} must be at least {MIN_SEQ_LENGTH}.")
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

        data = Sequences(sequences(), self.tokenizer.pad_id, {"label_ids": values})
        summary = f"{len(examples):,} examples, {data.mean_length:.0f} tokens on average"
        if cut := sum(size > longest for size in sizes):
            summary += f"; {cut:,} are longer than {longest} tokens and cut"
        if labelled and labels:
            counts = collections.Counter(x.label for x in examples).most_common(_SHOWN_LABELS)
            shares = (f"{label} {count / len(examples):.1%}" for label, count in counts)
            summary += f"; labels {', '.join(shares)}"
            summary += " …" if len(labels) > len(counts) else ""
        elif labelled:
            summary += f"; labels {values.mean():.3g} on average"
        return ExampleSet(examples, data, summary)

    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.tsv; for a data set of another name, predictions/<name>.tsv."""
        named = PREDICTIONS, f"{data.name}.tsv"
        path = folder.file(*([PREDICTIONS_FILE] if data.name == "predict" else named))
        ids, (values,) = (example.id for example in data.examples), outputs.values()
        write_predictions(path, ids, values, self.spec.labels)
        log.info(f"Predictions for {len(data.examples):,} examples are in {path}.")

    def export(self, model: AlbertClassifier) -> Export:
        """See albert_tf.tasks.classification.export."""
        from albert_tf.tasks.classification.export import classifier_export

        return classifier_export(self, model)

    def export_ids(self, model: AlbertClassifier) -> tuple[str, Outputs, tuple[str, ...]]:
        """See albert_tf.tasks.classification.export."""
        from albert_tf.tasks.classification.export import KIND

        return KIND.title, lambda inputs, _: self.predict(model, inputs), self.spec.labels

    def build_model(self, dtype: str = FLOAT32) -> AlbertClassifier:
        """Builds the encoder with a classification head."""
        return AlbertClassifier(self.config, len(self.spec.labels) or 1, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Sums the loss and, for classification, the correct answers."""
        logits, labels = logits_of(model, batch, training), batch["label_ids"]
        if not self.spec.labels:
            return {"loss": tf.reduce_sum(tf.square(logits[:, 0] - labels))}
        return choice_sums(logits, labels)

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns `probabilities` [batch, labels], or `value` [batch] for regression."""
        logits = logits_of(model, batch)
        if self.spec.labels:
            return {"probabilities": tf.nn.softmax(logits)}
        return {"value": logits[:, 0]}

    def metrics(self, outputs: Arrays, examples: ExampleSet) -> dict[str, float]:
        """See `classification_metrics` and `regression_metrics`."""
        labels = label_values(examples.examples, self.spec.labels)
        if self.spec.labels:
            return classification_metrics(outputs["probabilities"], labels)
        return regression_metrics(outputs["value"], labels)


def label_set(examples: Sequence[TextExample]) -> tuple[str, ...]:
    """Returns the distinct labels, sorted.

    Raises:
      AlbertError: a label is empty, or there are fewer than two labels.
    """
    for example in examples:
        if not example.label:
            raise AlbertError(f"{example.where}: the label is empty.")
    labels = sorted({example.label for example in examples})
    if len(labels) < 2:
        raise AlbertError(
            f"The training examples ({len(examples):,}) all have the label "
            f"{short_repr(labels[0])}; at least two labels are needed."
        )
    return tuple(labels)


def label_values(examples: Sequence[TextExample], labels: Sequence[str]) -> np.ndarray:
    """Returns labels as indices into `labels`, int32 [n]; without `labels` as float32 [n].

    Raises:
      AlbertError: a label is not in `labels`, or is not a number that can be trained on.
    """
    index = {label: i for i, label in enumerate(labels)}
    problem = f"is not a number from {-_LARGEST:g} to {_LARGEST:g}"
    if labels:
        problem = f"does not occur in the training data, which has {joined(labels)}"
    values = []
    for example in examples:
        try:
            values.append(index[example.label] if labels else float(example.label))
        except (KeyError, TypeError, ValueError):
            values.append(math.inf)
        if not abs(values[-1]) <= _LARGEST:
            raise AlbertError(f"{example.where}: the label {short_repr(example.label)} {problem}.")
    return np.array(values, np.int32 if labels else np.float32)


def classification_metrics(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Computes metrics of single-label classification.

    Args:
      probabilities: float [n, number of labels].
      labels: int [n].

    Returns:
      `loss` (mean negative log-likelihood), `accuracy`, `macro_f1`, `majority_accuracy` (that of
      always predicting the most frequent label in `labels`); and for two labels `f1` of the second
      one and `matthews_corr`, which is 0 if all predictions or all labels are the same.
    """
    from sklearn import metrics

    predictions = probabilities.argmax(axis=-1)
    classes = np.arange(probabilities.shape[-1])
    result = {
        "loss": choice_loss(probabilities, labels),
        "accuracy": metrics.accuracy_score(labels, predictions),
        "macro_f1": metrics.f1_score(
            labels, predictions, labels=classes, average="macro", zero_division=0
        ),
        "majority_accuracy": np.bincount(labels).max() / len(labels),
    }
    if len(classes) == 2:
        result["f1"] = metrics.f1_score(labels, predictions, zero_division=0)
        # For a single label it is undefined; scikit-learn would return 0 with a warning.
        single = len(np.unique(np.concatenate([labels, predictions]))) == 1
        result["matthews_corr"] = 0.0 if single else metrics.matthews_corrcoef(labels, predictions)
    return {name: float(value) for name, value in result.items()}


def regression_metrics(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Computes metrics of regression from float [n] predictions and labels.

    Returns:
      `pearson` and `spearman` (0 where undefined, as for constant predictions), `mse`, and
      `mean_answer_mse` (that of always predicting the mean of `labels`).
    """
    from scipy import stats

    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)
    pearson = spearman = 0.0
    if np.isfinite(predictions).all() and np.ptp(predictions) > 0 and np.ptp(labels) > 0:
        pearson = float(stats.pearsonr(predictions, labels).statistic)
        spearman = float(stats.spearmanr(predictions, labels).statistic)
    mse, constant = float(np.mean((predictions - labels) ** 2)), float(labels.var())
    return {"pearson": pearson, "spearman": spearman, "mse": mse, "mean_answer_mse": constant}
