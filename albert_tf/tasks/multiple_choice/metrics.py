# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of multiple choice."""

from __future__ import annotations

import math

import numpy as np

from albert_tf.tasks.multiple_choice.features import GROUPS


def multiple_choice_metrics(
    probabilities: np.ndarray, label_ids: np.ndarray, group_ids: np.ndarray
) -> dict[str, float]:
    """Metrics of multiple choice, next to what guessing reaches.

    Args:
      probabilities: float [n, options].
      label_ids: int [n].
      group_ids: int [n], indices into GROUPS.

    Returns:
      `accuracy`, `<group>_accuracy` for the groups that occur, `loss` (mean negative
      log-likelihood), `chance_accuracy` and `chance_loss`.
    """
    right = probabilities.argmax(axis=-1) == label_ids
    likelihoods = np.take_along_axis(probabilities, label_ids[:, None].astype(np.int64), axis=-1)
    result = {"accuracy": right.mean()}
    for number, group in enumerate(GROUPS):
        if group and (group_ids == number).any():
            result[f"{group}_accuracy"] = right[group_ids == number].mean()
    result["loss"] = -np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny)).mean()
    result["chance_accuracy"] = 1 / probabilities.shape[1]
    result["chance_loss"] = math.log(probabilities.shape[1])
    return {name: float(value) for name, value in result.items()}
