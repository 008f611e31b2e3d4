# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The learning rate as a pure function of the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.keras2 import keras


def learning_rate_at(
    step: Any,
    *,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int = 0,
    poly_power: float = 1.0,
    start_warmup_step: int = 0,
) -> Any:
    """Returns the rate of update number `step`, from 0: linear warm-up, then polynomial decay.

    As in the release (google-research/albert optimization.create_optimizer), the decay starts at
    step 0, so the rate drops slightly at the end of the warm-up. Unlike there, it is 0 rather than
    negative before `start_warmup_step`.

    Args:
      step: a tensor of any shape (returns float32), or a number or NumPy array (returns float64).
      learning_rate: the rate that the warm-up approaches.
      num_train_steps: the step at which the rate reaches 0.
      num_warmup_steps: length of the warm-up; 0 for none.
      poly_power: exponent of the decay.
      start_warmup_step: the step at which the warm-up begins.
    """
    if tf.is_tensor(step):
        step = tf.cast(step, tf.float32)
        minimum, maximum, where = tf.minimum, tf.maximum, tf.where
    else:
        step = np.asarray(step, np.float64)
        minimum, maximum, where = np.minimum, np.maximum, np.where
    total = float(num_train_steps)
    rate = learning_rate * (1.0 - minimum(step, total) / total) ** poly_power
    if num_warmup_steps > 0:
        since_start = step - float(start_warmup_step)
        warmup_rate = learning_rate * since_start / float(num_warmup_steps)
        rate = where(since_start < num_warmup_steps, maximum(warmup_rate, 0.0), rate)
    return rate if tf.is_tensor(rate) or np.ndim(rate) else float(rate)


class WarmupPolynomialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """`learning_rate_at` as a Keras schedule; takes the same keyword arguments.

    Args:
      **arguments: `learning_rate`, `num_train_steps` and the rest of `learning_rate_at`.
    """

    def __init__(self, **arguments: float) -> None:
        super().__init__()
        learning_rate_at(0, **arguments)  # Wrong arguments should fail here, not while tracing.
        self._arguments = arguments

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the float32 learning rate of update number `step`."""
        return learning_rate_at(tf.convert_to_tensor(step), **self._arguments)

    def get_config(self) -> dict[str, float]:
        """Returns the arguments of the constructor."""
        return dict(self._arguments)
