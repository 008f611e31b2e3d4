# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The labels of texts: what those of the training decide, as numbers, and their weights."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.text_tables import Label, label_text
from albert_tf.tasks.classification.spec import LARGEST, ClassificationSpec, are_numbers
from albert_tf.tasks.tables import TextExample

#: The least standard deviation of numbers to predict, as a share of their mean: predictions are
#: float32 and then exact to less than a hundredth of it.
_LEAST_DEVIATION = 1e-5


def own_labels(example: TextExample) -> tuple[Label, ...]:
    """Returns the labels of a text that has one, or any number of them."""
    return example.label if isinstance(example.label, tuple) else (example.label,)


def label_settings(
    examples: Sequence[TextExample], regression: bool, order: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what the labels of training examples decide in a ClassificationSpec.

    For `order` see `label_set`.

    Raises:
      AlbertError: see `label_set` and `label_values`; or the numbers of a regression do not
        differ.
    """
    if not regression:
        several = any(isinstance(example.label, tuple) for example in examples)
        return {"labels": label_set(examples, order), "multi_label": several}
    values = label_values(examples, ())
    # The sums are exact, so that a run is found again on any machine.
    mean = statistics.fmean(values)
    deviation = math.sqrt(statistics.fmean((values - mean) ** 2))
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
    by_text = {label_text(label): label for x in examples for label in own_labels(x)}
    if len(by_text) < 2 and not any(isinstance(x.label, tuple) for x in examples):
        raise AlbertError(
            f"The training examples ({len(examples):,}) all have the label "
            f"{short_repr(*by_text.values())}; at least two labels are needed."
        )
    if are_numbers(labels := [*by_text.values()]):
        return tuple(sorted(labels))
    return tuple(sorted(by_text, key=lambda x: (order.index(x) if x in order else -1, x)))


def label_values(
    examples: Sequence[TextExample], labels: Sequence[Label], several: bool = False
) -> np.ndarray:
    """Returns labels as indices into `labels`, int32 [n]; without `labels` as float64 [n].

    If texts may have several, returns which of them each text has, bool [n, labels]. A label is
    found by how it is written, or else a number by its value.

    Raises:
      AlbertError: a label is missing or not in `labels`, or is not a number that can be trained on.
    """
    index = {label: i for i, label in enumerate(labels)}
    index |= {label_text(label): i for label, i in index.items()}
    problem = f"is not a number from {-LARGEST:g} to {LARGEST:g}"
    if labels:
        problem = f"does not occur in the training data, which has {joined(labels)}"
    rows, values = [], []
    for row, example in enumerate(examples):
        for label in own_labels(example) if several else [example.label]:
            if label is None:
                raise AlbertError(f"{example.where}: the label is missing.")
            text = label_text(label)
            try:
                value = index.get(text, index.get(label)) if labels else float(text)
            except ValueError:
                value = None
            if value is None or not abs(value) <= LARGEST:
                raise AlbertError(f"{example.where}: the label {short_repr(label)} {problem}.")
            rows.append(row)
            values.append(value)
    if not several:
        return np.array(values, np.int32 if labels else np.float64)
    has = np.zeros([len(examples), len(labels)], bool)
    has[rows, values] = True
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
