# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of classification and regression, and those of a constant answer."""

from __future__ import annotations

import numpy as np


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
    likelihoods = np.take_along_axis(probabilities, labels[:, None].astype(np.int64), axis=-1)
    result = {
        "loss": -np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny)).mean(),
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
    result = {
        "pearson": 0.0,
        "spearman": 0.0,
        "mse": float(np.mean((predictions - labels) ** 2)),
        "mean_answer_mse": float(labels.var()),
    }
    if np.isfinite(predictions).all() and np.ptp(predictions) > 0 and np.ptp(labels) > 0:
        result["pearson"] = float(stats.pearsonr(predictions, labels).statistic)
        result["spearman"] = float(stats.spearmanr(predictions, labels).statistic)
    return result
