# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The metrics of one label per text, of several, and of numbers; the best thresholds."""

from __future__ import annotations

import numpy as np

from albert_tf.tasks.fine_tuning_task import choice_loss
from albert_tf.training.task import Metrics, floats


def classification_metrics(
    probabilities: np.ndarray, labels: np.ndarray, positive: int | None = None
) -> Metrics:
    """Computes metrics of single-label classification.

    Args:
      probabilities: float [n, number of labels].
      labels: int [n].
      positive: the label that `precision`, `recall` and `f1` are of; if there are only two, by
        default the second one.

    Returns:
      `loss` (mean negative log-likelihood), `accuracy`, `macro_f1` (the mean of the classes that
      occur in `labels` or are predicted), `majority_accuracy` (that of always predicting the most
      frequent label in `labels`), those of `positive`, and for two labels `matthews_corr`, which is
      0 if all predictions or all labels are the same.
    """
    from sklearn import metrics

    number, predictions = probabilities.shape[-1], probabilities.argmax(axis=-1)
    result = {
        "loss": choice_loss(probabilities, labels),
        "accuracy": np.mean(labels == predictions),
        "macro_f1": metrics.f1_score(labels, predictions, average="macro", zero_division=0),
        "majority_accuracy": np.bincount(labels).max() / len(labels),
    }
    if positive is None and number == 2:
        positive = 1
    if positive is not None:
        scores = metrics.precision_recall_fscore_support(
            labels == positive, predictions == positive, average="binary", zero_division=0
        )
        result |= zip(("precision", "recall", "f1"), scores)
    if number == 2:
        result["matthews_corr"] = metrics.matthews_corrcoef(labels, predictions)
    return floats(result)


def multi_label_metrics(
    probabilities: np.ndarray, chosen: np.ndarray, labels: np.ndarray
) -> Metrics:
    """Computes metrics of texts with any number of labels.

    Args:
      probabilities: float [n, labels].
      chosen: whether each label is predicted, bool [n, labels].
      labels: whether the text has it, bool [n, labels].

    Returns:
      `loss` (mean binary cross-entropy), `mean_average_precision` (of the labels that occur),
      `micro_f1`, `macro_f1` (the mean of the labels that occur or are predicted), and what these
      are if every label that occurs is predicted for every text, as `majority_macro_f1`, ….
    """
    from sklearn.metrics import average_precision_score

    of_both = np.stack([1 - probabilities, probabilities], axis=-1).reshape(-1, 2)
    result = {"loss": choice_loss(of_both, labels.ravel())}
    columns = np.flatnonzero(labels.any(axis=0))
    same = np.tile(labels.any(axis=0), [len(labels), 1])
    for prefix, scores, found in (("", probabilities, chosen), ("majority_", same, same)):
        precision = 0.0
        if len(columns):
            precision = average_precision_score(labels[:, columns], scores[:, columns])
        hits, total = (labels & found).sum(axis=0), labels.sum(axis=0) + found.sum(axis=0)
        f1 = 2 * hits / np.maximum(total, 1)
        result[f"{prefix}mean_average_precision"] = precision
        result[f"{prefix}micro_f1"] = 2 * hits.sum() / max(total.sum(), 1)
        result[f"{prefix}macro_f1"] = f1.sum() / max(np.count_nonzero(total), 1)
    return floats(result)


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


def regression_metrics(
    predictions: np.ndarray, labels: np.ndarray, deviation: float = 1.0
) -> Metrics:
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
        pearson, spearman = (
            measure(predictions, labels).statistic for measure in (stats.pearsonr, stats.spearmanr)
        )
    mse = np.mean((predictions - labels) ** 2)
    result = {"pearson": pearson, "spearman": spearman, "mse": mse, "loss": mse / deviation**2}
    return floats({**result, "mean_answer_mse": labels.var()})
