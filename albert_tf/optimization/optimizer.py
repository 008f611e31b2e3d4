# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""LAMB and AdamW with the numerics of the ALBERT release, and their learning rate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import tensorflow as tf

#: Decay of the moments β₁ and β₂, and ε, as in the release.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6
#: Added to the update, times the weight.
WEIGHT_DECAY = 0.01
#: Matches the official names of weights without decay and layer adaptation.
EXCLUDED = re.compile("LayerNorm|layer_norm|bias")


class AlbertOptimizer:
    """LAMB or AdamW; create it in the strategy's scope.

    Both follow google-research/albert (lamb_optimizer.LAMBOptimizer and
    optimization.AdamWeightDecayOptimizer): with m and v the moving averages of g and g²,
    u = m / (√v + ε) + decay · w, then w −= lr · r · u. For LAMB (You et al., 2020, algorithm 2)
    r = ‖w‖ / ‖u‖ where both are positive; for AdamW, and for LayerNorm and bias weights, r = 1.
    Those have no decay either. A test compares it with tensorflow-addons' LAMB, bit by bit.

    Args:
      name: one of OPTIMIZERS.
      learning_rate: a number, or a function of `iterations`.
      named_weights: trainable weights by official name; EXCLUDED matches these names.

    Attributes:
      iterations: counts updates from 0, an int64 variable.
      named_weights: as passed in.
      named_slots: both moments of each weight by the names `<weight>/adam_m` and `…/adam_v`.
    """

    def __init__(
        self,
        name: str,
        learning_rate: float | Callable[[tf.Tensor], tf.Tensor],
        named_weights: Mapping[str, tf.Variable],
    ) -> None:
        self._adapts_layers = name == "lamb"
        self._learning_rate = learning_rate
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False, name="iterations")
        self.named_weights = dict(named_weights)
        self.named_slots = {
            f"{weight}/adam_{moment}": tf.Variable(tf.zeros(variable.shape), trainable=False)
            for weight, variable in named_weights.items()
            for moment in ("m", "v")
        }

    @property
    def learning_rate(self) -> tf.Tensor:
        """The rate of the next update, a float32 scalar."""
        rate = self._learning_rate
        return tf.cast(rate(self.iterations) if callable(rate) else rate, tf.float32)

    @property
    def state(self) -> tf.train.Checkpoint:
        """What belongs into checkpoints."""
        return tf.train.Checkpoint(iterations=self.iterations, **self.named_slots)

    def apply_gradients_if(
        self, finite: tf.Tensor, gradients: Mapping[str, tf.Tensor | tf.IndexedSlices]
    ) -> None:
        """Makes one update, or none if `finite` is False; `iterations` advances either way.

        Call it in a replica; each updates its own copies. A skipped update changes no bit of
        weights and slots, whatever the gradients are. As MirroredStrategy forbids a conditional
        around an update, it replaces the gradients by zeros and the coefficients by those of an
        update that changes nothing.

        Args:
          finite: bool scalar, the same on all replicas.
          gradients: already summed over replicas, by the names of their weights. Other weights do
            not change.
        """

        def unless_skipped(value, idle) -> tf.Tensor:
            return tf.where(finite, value, idle)

        beta_1, beta_2 = unless_skipped(BETA_1, 1.0), unless_skipped(BETA_2, 1.0)
        # Subtracted in double precision, as in the release: 1 - float32(0.999) is 1e-5 off.
        rest_1, rest_2 = unless_skipped(1.0 - BETA_1, 0.0), unless_skipped(1.0 - BETA_2, 0.0)
        rate = unless_skipped(self.learning_rate, 0.0)
        for name, gradient in gradients.items():
            weight = self.named_weights[name]
            m, v = (self.named_slots[f"{name}/adam_{moment}"] for moment in ("m", "v"))
            gradient = tf.convert_to_tensor(gradient)
            gradient = tf.where(finite, gradient, tf.zeros_like(gradient))
            mean = m * beta_1 + gradient * rest_1
            square = v * beta_2 + gradient * gradient * rest_2
            m.assign(mean)
            v.assign(square)
            update, size = mean / (tf.sqrt(square) + EPSILON), rate
            if not EXCLUDED.search(name):
                update += WEIGHT_DECAY * weight
                if self._adapts_layers:
                    weight_norm, update_norm = tf.norm(weight), tf.norm(update)
                    both_positive = (weight_norm > 0) & (update_norm > 0)
                    size = tf.where(both_positive, weight_norm / update_norm, 1.0) * rate
            weight.assign(weight - size * update)
        self.iterations.assign_add(1)


def learning_rate_at(
    step: tf.Tensor,
    *,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int = 0,
) -> tf.Tensor:
    """Returns the float32 rate of update number `step`, from 0: linear warm-up, linear decay.

    As in the release (google-research/albert optimization.create_optimizer), the decay starts at
    step 0, so the rate drops slightly at the end of the warm-up.

    Args:
      step: integers of any shape.
      learning_rate: the rate that the warm-up approaches.
      num_train_steps: the step at which the rate reaches 0.
      num_warmup_steps: length of the warm-up; 0 for none.
    """
    step = tf.cast(step, tf.float32)
    total = float(num_train_steps)
    rate = learning_rate * (1.0 - tf.minimum(step, total) / total)
    if num_warmup_steps > 0:
        warmup_rate = learning_rate * step / float(num_warmup_steps)
        rate = tf.where(step < num_warmup_steps, warmup_rate, rate)
    return rate
