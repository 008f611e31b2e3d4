# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextClassificationTask: classification of texts and pairs of texts, and regression on them."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.log import log
from albert_tf.io.text_tables import Label, label_text
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.tasks.choice_task import ChoiceTask, choice_loss
from albert_tf.tasks.classification.spec import (
    LARGEST,
    SMALLER_IS_BETTER,
    ClassificationSpec,
    are_numbers,
)
from albert_tf.tasks.example_set import ExampleSet
from albert_tf.tasks.fine_tuning_task import logits_of
from albert_tf.tasks.tables import TextExample, write_table
from albert_tf.tokenization.sequences import truncated_lengths
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Tensors
from albert_tf.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from albert_tf.export.text_form import TextForm

#: The least standard deviation of numbers to predict, as a share of their mean: predictions are
#: float32 and then exact to less than a hundredth of it.
_LEAST_DEVIATION = 1e-5
#: Labels in the summary of a data set.
_SHOWN_LABELS = 5


class TextClassificationTask(ChoiceTask):
    """Classifies with a linear layer on the pooled output.

    The loss is the cross-entropy, of several labels per text the mean of each one's binary
    cross-entropy, and for regression the squared error.
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
        default = "mean_average_precision" if self.spec.multi_label else "accuracy"
        return self.spec.best_metric or (default if self.spec.labels else "pearson")

    @property
    def constant_answers(self) -> dict[str, str]:
        """See Task."""
        larger = self.best_metric_larger_is_better
        return {self.best_metric: f"majority_{self.best_metric}"} if larger else {}

    @property
    def threshold_names(self) -> Sequence[str]:
        """See FineTuningTask: of several labels per text, each has a threshold."""
        return self.spec.names if self.spec.multi_label else ()

    def label_values(self, examples: Sequence[TextExample]) -> np.ndarray:
        """See `label_values`, and `label_matrix` if a text may have several labels."""
        return (label_matrix if self.spec.multi_label else label_values)(examples, self.spec.labels)

    def chosen(self, probabilities: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
        """Returns which probabilities of several labels, [n, labels], are above their thresholds.

        Without an evaluation, these are 0.5.
        """
        kept = self.thresholds or {}
        return probabilities > np.float32([kept.get(name, 0.5) for name in self.spec.names])

    def encode(
        self, examples: Sequence[TextExample], *, labelled: bool = True, training: bool = False
    ) -> ExampleSet:
        """See FineTuningTask. Makes [CLS] A [SEP] of texts and [CLS] A [SEP] B [SEP] of pairs.

        An empty second text counts as none. Longer texts are cut, see `truncated_lengths`.
        Source: google-research/albert classifier_utils.convert_single_example.
        """
        labels, longest = self.spec.labels, self.spec.max_seq_length
        # The labels are checked before the texts are tokenized.
        values = self.label_values(examples if labelled else ())
        if not labelled:  # One graph evaluates and predicts: its batches have the same columns.
            values = np.zeros([len(examples), *values.shape[1:]], values.dtype)

        def cut(a: list[int], b: list[int]) -> tuple[list[int], list[int] | None]:
            room = longest - (3 if b else 2)
            kept_a, kept_b = truncated_lengths(len(a), len(b), room)
            return a[:kept_a], b[:kept_b] if b else None

        targets = values if labels else (values - self.spec.mean) / self.spec.deviation
        columns = {"label_ids": targets}
        if training and self.spec.class_weights:
            columns["loss_weights"] = loss_weights(values, self.spec)
        data, notes = self.join([(x.text, x.text_pair or "") for x in examples], cut, columns)
        summary = f"{len(examples):,} examples, {data.mean_length:.0f} tokens on average"
        if labelled and labels:
            counts = collections.Counter(label for x in examples for label in _several(x.label))
            counts = counts.most_common(_SHOWN_LABELS)
            shares = (f"{label} {count / len(examples):.1%}" for label, count in counts)
            summary += f"; labels {', '.join(shares)}"
            summary += " …" if len(labels) > len(counts) else ""
        elif labelled:
            summary += f"; labels {values.mean():.3g} on average, deviation {values.std():.3g}"
        return ExampleSet(examples, data, summary, notes=notes)

    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """See `write_table`."""
        (values,) = outputs.values()
        chosen = self.chosen(values) if self.spec.multi_label else None
        write_table(folder, data.name, data.examples, values, self.spec.labels, chosen)

    def write_evaluation(
        self, data: ExampleSet, outputs: Arrays, results: Mapping[str, float], folder: RunFolder
    ) -> None:
        """See FineTuningTask: keeps the thresholds."""
        if self.spec.multi_label:
            found = best_thresholds(outputs["probabilities"], self.label_values(data.examples))
            self.keep_thresholds(dict(zip(self.spec.names, found.tolist())), folder)

    def text_form(self, model: AlbertClassifier) -> TextForm:
        """See ClassifierForm."""
        from albert_tf.tasks.classification.export import ClassifierForm

        return ClassifierForm(self, model)

    def build_model(self, dtype: str = FLOAT32) -> AlbertClassifier:
        """Builds the encoder with a classification head."""
        return AlbertClassifier(self.config, len(self.spec.labels) or 1, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """See ChoiceTask; for regression, sums the loss, and the loss in the labels' unit."""
        if self.spec.multi_label:
            logits = logits_of(model, batch, training)
            labels = tf.cast(batch["label_ids"], logits.dtype)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
            losses *= batch.get("loss_weights", 1.0)
            return {"loss": tf.reduce_sum(tf.reduce_mean(losses, axis=1))}
        if self.spec.labels:
            return super().sums(model, batch, training)
        values = logits_of(model, batch, training)[:, 0]
        loss = tf.reduce_sum(tf.square(values - batch["label_ids"]))
        return {"loss": loss, "mse": loss * self.spec.deviation**2}

    def progress(self, means: Mapping[str, float]) -> str:
        """Formats the loss, and the accuracy or the loss in the labels' unit."""
        text = super().progress(means)
        return text if self.spec.labels else f"{text} mse {means['mse']:.4g}"

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """See ChoiceTask; for regression, returns `value` [batch]."""
        if self.spec.multi_label:
            return {"probabilities": tf.sigmoid(logits_of(model, batch))}
        if self.spec.labels:
            return super().predict(model, batch)
        return {"value": logits_of(model, batch)[:, 0] * self.spec.deviation + self.spec.mean}

    def metrics(self, outputs: Arrays, examples: ExampleSet) -> dict[str, float]:
        """See `classification_metrics`, `multi_label_metrics` and `regression_metrics`.

        Without thresholds, those are used that are best for these examples.
        """
        labels = self.label_values(examples.examples)
        if self.spec.labels:
            positive, probabilities = self.spec.positive_label, outputs["probabilities"]
            positive = None if positive is None else self.spec.names.index(positive)
            if not self.spec.multi_label:
                return classification_metrics(probabilities, labels, positive)
            chosen = self.chosen(probabilities)
            if self.thresholds is None:
                chosen = probabilities > best_thresholds(probabilities, labels)
            return multi_label_metrics(probabilities, chosen, labels, positive)
        return regression_metrics(outputs["value"], labels, self.spec.deviation)


def with_labels(examples: Sequence[TextExample]) -> list[TextExample]:
    """Leaves out training examples without a label, and says how many there are."""
    kept = [example for example in examples if example.label is not None]
    if missing := len(examples) - len(kept):
        log.info(f"train: {missing:,} of {len(examples):,} rows have no label and are left out.")
    return kept


def label_settings(
    examples: Sequence[TextExample], regression: bool, order: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what the labels of training examples decide in a ClassificationSpec.

    For `order` see `label_set`.

    Raises:
      AlbertError: see `label_set` and `label_values`; there is no example, or the numbers of a
        regression do not differ.
    """
    if not any(_several(example.label) for example in examples):
        raise AlbertError("None of the examples to train on has a label.")
    if not regression:
        several = any(isinstance(example.label, tuple) for example in examples)
        return {"labels": label_set(examples, order), "multi_label": several}
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
      AlbertError: there are fewer than two labels, and no text may have several.
    """
    by_text = {label_text(label): label for x in examples for label in _several(x.label)}
    if len(by_text) < 2 and not isinstance(examples[0].label, tuple):
        raise AlbertError(
            f"The training examples ({len(examples):,}) all have the label "
            f"{short_repr(*by_text.values())}; at least two labels are needed."
        )
    if are_numbers(labels := [*by_text.values()]):
        return tuple(sorted(labels))
    return tuple(sorted(by_text, key=lambda x: (order.index(x) if x in order else -1, x)))


def _several(label: Label | tuple[Label, ...]) -> tuple[Label, ...]:
    return label if isinstance(label, tuple) else (label,)


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
        if (label := example.label) is None:
            raise AlbertError(f"{example.where}: the label is missing.")
        text = label_text(label)
        try:
            values.append(index.get(text, index.get(label)) if labels else float(text))
        except ValueError:
            values.append(None)
        if values[-1] is None or not abs(values[-1]) <= LARGEST:
            raise AlbertError(f"{example.where}: the label {short_repr(label)} {problem}.")
    return np.array(values, np.int32 if labels else np.float64)


def label_matrix(examples: Sequence[TextExample], labels: Sequence[Label]) -> np.ndarray:
    """Returns whether each example has each of `labels`, bool [n, labels]; see `label_values`."""
    found = [_several(example.label) for example in examples]
    single = [
        dataclasses.replace(x, label=label) for x, own in zip(examples, found) for label in own
    ]
    has = np.zeros([len(examples), len(labels)], bool)
    rows = np.repeat(np.arange(len(examples)), [*map(len, found)])
    has[rows, label_values(single, labels)] = True
    return has


def loss_weights(labels: np.ndarray, spec: ClassificationSpec) -> np.ndarray:
    """Returns the weights of examples in the loss, float32 [n], given their labels, int32 [n].

    Their mean is 1, so that the loss keeps its scale. Given several labels per text, bool
    [n, labels], returns the weights of each label's loss, float32 [n, labels]. See
    `ClassificationSpec.class_weights`.
    """
    given = spec.weights_by_label()
    weights = np.array([given.get(name, 1.0) for name in spec.names])
    if spec.multi_label:
        if not given:  # Balanced; a label that all texts have must not have the weight 0.
            number = labels.sum(axis=0)
            weights = np.maximum(len(labels) - number, 1) / number
        return np.where(labels, weights, 1).astype(np.float32)
    weights = weights[labels] if given else 1 / np.bincount(labels)[labels]
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
        result |= _of_one_label(labels == name, predictions == name)
    if probabilities.shape[-1] == 2:
        # For a single label it is undefined; scikit-learn would return 0 with a warning.
        single = len(np.unique(np.concatenate([labels, predictions]))) == 1
        result["matthews_corr"] = 0.0 if single else metrics.matthews_corrcoef(labels, predictions)
    return {name: float(value) for name, value in result.items()}


def _of_one_label(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    from sklearn import metrics

    scores = metrics.precision_recall_fscore_support(
        labels, predictions, average="binary", zero_division=0
    )
    return dict(zip(("precision", "recall", "f1"), scores))


def best_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns for each label the threshold with the best F1, float32 [labels].

    It never separates texts of equal probability, and lies halfway to the next probability, so that
    rounding does not matter. A label that no text has keeps 0.5.

    Args:
      probabilities: float [n, labels].
      labels: whether a text has a label, bool [n, labels].
    """
    order = np.argsort(-probabilities, axis=0)
    ranked, truth = (np.take_along_axis(x, order, axis=0) for x in (probabilities, labels))
    following = np.append(ranked[1:], np.zeros_like(ranked[:1]), axis=0)
    hits, predicted = truth.cumsum(axis=0), np.arange(1, len(labels) + 1)[:, None]
    f1 = np.where(ranked > following, hits / (predicted + hits[-1]), -1)
    best = f1.argmax(axis=0), np.arange(labels.shape[1])
    return np.where(hits[-1], (ranked[best] + following[best]) / 2, 0.5).astype(np.float32)


def multi_label_metrics(
    probabilities: np.ndarray, chosen: np.ndarray, labels: np.ndarray, positive: int | None = None
) -> dict[str, float]:
    """Computes metrics of texts with any number of labels.

    Args:
      probabilities: float [n, labels].
      chosen: whether each label is predicted, bool [n, labels].
      labels: whether the text has it, bool [n, labels].
      positive: the label that precision, recall and f1 are of.

    Returns:
      `loss` (mean binary cross-entropy), `mean_average_precision` (of the labels that occur),
      `micro_f1`, `macro_f1` (the mean of the labels that occur or are predicted), and what these
      are if every label that occurs is predicted for every text, as `majority_macro_f1`, …. With
      `positive`, `precision`, `recall` and `f1` of that label.
    """
    of_both = np.stack([1 - probabilities, probabilities], axis=-1).reshape(-1, 2)
    result = {
        "loss": choice_loss(of_both, labels.ravel()),
        **_scores(probabilities, chosen, labels),
    }
    same = np.tile(labels.any(axis=0), [len(labels), 1])
    result |= {f"majority_{k}": score for k, score in _scores(same, same, labels).items()}
    if positive is not None:
        result |= _of_one_label(labels[:, positive], chosen[:, positive])
    return {name: float(value) for name, value in result.items()}


def _scores(
    probabilities: np.ndarray, chosen: np.ndarray, labels: np.ndarray
) -> dict[str, np.floating]:
    from sklearn import metrics

    columns, precision = np.flatnonzero(labels.any(axis=0)), 0.0
    if len(columns):
        precision = metrics.average_precision_score(labels[:, columns], probabilities[:, columns])
    hits, total = (labels & chosen).sum(axis=0), labels.sum(axis=0) + chosen.sum(axis=0)
    return {
        "mean_average_precision": precision,
        "micro_f1": 2 * hits.sum() / max(total.sum(), 1),
        "macro_f1": np.sum(2 * hits / np.maximum(total, 1)) / max(np.count_nonzero(total), 1),
    }


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
