# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from scipy import stats

from albert_tf.tasks.classification.metrics import classification_metrics, regression_metrics


def one_hot(predictions, classes, certainty=0.9):
    rest = (1 - certainty) / (classes - 1)
    return np.where(np.eye(classes)[predictions] > 0, certainty, rest).astype(np.float32)


def test_binary_metrics_follow_their_definitions():
    labels = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    predictions = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0, 0])
    tp, fn, fp, tn = 3, 1, 1, 5
    metrics = classification_metrics(one_hot(predictions, 2), labels)
    assert metrics["accuracy"] == pytest.approx(0.8)
    assert metrics["majority_accuracy"] == pytest.approx(0.6)
    assert metrics["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn))
    f1_of_first = 2 * tn / (2 * tn + fp + fn)
    assert metrics["macro_f1"] == pytest.approx((metrics["f1"] + f1_of_first) / 2)
    mcc = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert metrics["matthews_corr"] == pytest.approx(mcc, abs=1e-9)
    assert metrics["loss"] == pytest.approx(-(8 * np.log(0.9) + 2 * np.log(0.1)) / 10, rel=1e-6)


@pytest.mark.parametrize(("predicted", "f1"), [([0, 0, 1], 2 / 3), ([0, 2, 1], (1 + 2 / 3) / 3)])
def test_more_classes_have_no_binary_metrics_and_count_those_that_occur(predicted, f1):
    metrics = classification_metrics(one_hot(np.array(predicted), 4), np.array([0, 1, 1]))
    assert set(metrics) == {"loss", "accuracy", "macro_f1", "majority_accuracy"}
    assert metrics["macro_f1"] == pytest.approx(f1)


@pytest.mark.parametrize("labels", [[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
def test_constant_predictions_give_zero_not_nan(labels):
    metrics = classification_metrics(one_hot(np.zeros(4, int), 2), np.array(labels))
    assert metrics["matthews_corr"] == 0.0
    assert np.isfinite(list(metrics.values())).all()


def test_correlations_follow_their_definitions():
    rng = np.random.default_rng(0)
    labels = rng.integers(-10, 10, 200) / 5  # With ties.
    predictions = np.exp(labels) + 0.01 * rng.normal(size=200)
    metrics = regression_metrics(predictions.astype(np.float32), labels.astype(np.float32))
    assert metrics["pearson"] == pytest.approx(np.corrcoef(predictions, labels)[0, 1], abs=1e-6)
    ranks = [stats.rankdata(x) for x in (predictions, labels)]
    assert metrics["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-6)
    assert metrics["mse"] == pytest.approx(np.mean((predictions - labels) ** 2), rel=1e-5)
    assert metrics["mean_answer_mse"] == pytest.approx(np.var(labels), rel=1e-5)


@pytest.mark.parametrize("predictions", [[1.0, 1.0, 1.0], [np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0]])
def test_undefined_correlation_is_zero(predictions):
    metrics = regression_metrics(np.array(predictions), np.array([1.0, 2.0, 3.0]))
    assert metrics["pearson"] == metrics["spearman"] == 0.0
    constant = regression_metrics(np.array([1.0, 2.0]), np.array([3.0, 3.0]))
    assert constant["pearson"] == constant["spearman"] == 0.0
    assert regression_metrics(np.array([1.0]), np.array([1.0]))["mse"] == 0.0
