# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dynamic loss scaling, without which small gradients vanish in float16."""

from __future__ import annotations

import tensorflow as tf

#: The scale at the start, and the good steps after which it doubles; as in Keras.
INITIAL_SCALE, GROWTH_STEPS = 2.0**15, 2000
#: Below 1, gradients would lose more bits than they do without a scale.
MIN_SCALE = 1.0
#: Where nothing overflows, as with a frozen encoder, the scale would outgrow float32. NVIDIA's Apex
#: has this limit, too.
MAX_SCALE = 2.0**24


class LossScale(tf.Module):
    """A power of two that multiplies the loss, and with it all gradients of the backward pass.

    Values below 6e-8 are zero in float16, and those above 65504 infinite. The scale is as large as
    the latter permits: a step whose gradients are not finite must be skipped and halves it, and a
    number of good steps in a row double it (Micikevicius et al., 2018, "Mixed Precision Training",
    section 3.2). Multiplying and dividing by it is exact in float32.

    Create it in the strategy's scope. Its variables belong into checkpoints: they decide which of
    the next steps are skipped.

    Attributes:
      value: the scale, a float32 variable.
      good_steps: those in a row since the scale last changed, an int64 variable.
    """

    def __init__(self) -> None:
        super().__init__(name="loss_scale")
        self.value = tf.Variable(INITIAL_SCALE, trainable=False, dtype=tf.float32, name="value")
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_steps")

    def update(self, finite: tf.Tensor) -> None:
        """Updates the scale after a step, whose gradients are finite or not.

        Call it in a replica, after the step's gradients were unscaled; `finite` is a bool scalar,
        the same on all replicas.
        """
        steps = self.good_steps + 1
        grows = steps >= GROWTH_STEPS
        larger = tf.where(grows, tf.minimum(2.0 * self.value, MAX_SCALE), self.value)
        smaller = tf.maximum(0.5 * self.value, MIN_SCALE)
        zero = tf.zeros_like(steps)
        # Each replica assigns the same values to its own copies.
        self.value.assign(tf.where(finite, larger, smaller))
        self.good_steps.assign(tf.where(finite & ~grows, steps, zero))
