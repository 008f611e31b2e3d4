# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""LAMB and AdamW with the numerics of the ALBERT release."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.optimization import OPTIMIZERS
from albert_tf.optimization.lamb import LAMB

#: Decay of the moments β₁ and β₂, and ε, as in the release.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6
#: Matches the official names of weights without decay and layer adaptation.
EXCLUDED = re.compile("LayerNorm|layer_norm|bias")

#: Coefficients with which an update by zero gradients changes nothing.
_IDLE_COEFFICIENTS = {
    "beta_1_t": 1.0,
    "beta_2_t": 1.0,
    "one_minus_beta_1_t": 0.0,
    "one_minus_beta_2_t": 0.0,
    "lr_t": 0.0,
}


class AlbertOptimizer(LAMB):
    """LAMB (You et al., 2020); with `adapt_layers=False` it is AdamW.

    Extends tensorflow-addons' LAMB, or our own with the same results, in three ways: bias
    correction is optional, weights are excluded by their official names, and a step can be
    skipped without leaving the graph. Built by `create_optimizer`.

    Attributes:
      named_weights: the weights that it updates, by official name.
    """

    def __init__(
        self,
        named_weights: Mapping[str, tf.Variable],
        *,
        adapt_layers: bool,
        bias_correction: bool,
        **kwargs: object,
    ) -> None:
        """Creates the slots, too. The other arguments are those of the base class."""
        super().__init__(beta_1=BETA_1, beta_2=BETA_2, epsilon=EPSILON, **kwargs)
        self.named_weights = dict(named_weights)
        # Updates get a single replica of a mirrored variable.
        local_replicas = tf.distribute.get_strategy().experimental_local_results
        self._official_names = {
            replica._unique_id: name
            for name, variable in named_weights.items()
            for replica in (variable, *local_replicas(variable))
        }
        self._adapt_layers = adapt_layers
        self._bias_correction = bias_correction
        self._finite: tf.Tensor | None = None
        # Slots created before the first step is traced can be restored before that step.
        self._create_all_weights(list(named_weights.values()))

    def named_slots(self) -> dict[str, tf.Variable]:
        """Returns both moments of each weight by the names `<weight>/adam_m` and `…/adam_v`."""
        return {
            f"{name}/adam_{slot}": self.get_slot(variable, slot)
            for name, variable in self.named_weights.items()
            for slot in ("m", "v")
        }

    def apply_gradients_if(
        self, finite: tf.Tensor, grads_and_vars: Sequence[tuple[tf.Tensor | None, tf.Variable]]
    ) -> tf.Operation:
        """Makes one update, or none if `finite` is False; `iterations` advances either way.

        A skipped update changes no bit of weights and slots, whatever the gradients are. As
        MirroredStrategy forbids a conditional around an update, it replaces the gradients by zeros
        and the coefficients by those of an update that changes nothing.

        Args:
          finite: bool scalar, the same on all replicas.
          grads_and_vars: gradients, already summed over replicas, with their weights. Weights
            whose gradient is None do not change.
        """
        pairs = []
        for gradient, variable in grads_and_vars:
            if gradient is not None:
                dense = tf.convert_to_tensor(gradient)
                pairs.append((tf.where(finite, dense, tf.zeros_like(dense)), variable))
        self._finite = finite
        try:
            return self.apply_gradients(pairs, experimental_aggregate_gradients=False)
        finally:
            self._finite = None

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        coefficients = apply_state[var_device, var_dtype]
        # Subtracted in double precision, as in the release: 1 - float32(0.999) is 1e-5 off.
        coefficients["one_minus_beta_1_t"] = tf.constant(1.0 - BETA_1, var_dtype)
        coefficients["one_minus_beta_2_t"] = tf.constant(1.0 - BETA_2, var_dtype)
        if not self._bias_correction:
            for name in ("beta_1_power", "beta_2_power"):
                coefficients[name] = tf.zeros([], var_dtype)
        if self._finite is not None:
            for name, idle_value in _IDLE_COEFFICIENTS.items():
                idle = tf.constant(idle_value, var_dtype)
                coefficients[name] = tf.where(self._finite, coefficients[name], idle)

    def _do_use_weight_decay(self, variable: tf.Variable) -> bool:
        return not EXCLUDED.search(self._official_names[variable._unique_id])

    def _do_layer_adaptation(self, variable: tf.Variable) -> bool:
        return self._adapt_layers and self._do_use_weight_decay(variable)


def create_optimizer(
    name: str,
    schedule: float | Callable[[tf.Tensor], tf.Tensor],
    named_weights: Mapping[str, tf.Variable],
    *,
    weight_decay_rate: float = 0.01,
    bias_correction: bool = False,
) -> AlbertOptimizer:
    """Creates LAMB or AdamW and its slots; call it in the strategy's scope.

    Both follow google-research/albert (lamb_optimizer.LAMBOptimizer and
    optimization.AdamWeightDecayOptimizer): with m and v the moving averages of g and g²,
    u = m / (√v + ε) + decay · w, then w −= lr · r · u. For LAMB r = ‖w‖ / ‖u‖ where both are
    positive; for AdamW, and for LayerNorm and bias weights, r = 1. Those have no decay either.

    Args:
      name: one of OPTIMIZERS.
      schedule: learning rate, or a function of `iterations`, which counts updates from 0.
      named_weights: trainable weights by official name; EXCLUDED matches these names.
      weight_decay_rate: decay added to the update.
      bias_correction: divides m by 1 − β₁ᵗ and v by 1 − β₂ᵗ as in You et al.; t counts all steps,
        skipped ones included.

    Raises:
      AlbertError: unknown name.
    """
    if name not in OPTIMIZERS:
        raise AlbertError(f"Unknown optimizer {name!r}; choose one of {', '.join(OPTIMIZERS)}.")
    return AlbertOptimizer(
        named_weights,
        adapt_layers=name == "lamb",
        bias_correction=bias_correction,
        learning_rate=schedule,
        weight_decay=weight_decay_rate,
        name=name,
    )


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None], clip_norm: float = 1.0
) -> tuple[list[tf.Tensor | tf.IndexedSlices | None], tf.Tensor]:
    """Scales gradients so that their joint norm is at most `clip_norm`.

    Pass gradients already summed over replicas and micro-batches, as tensors, so that the whole
    step is clipped once. The norm of tf.IndexedSlices is that of the parts, not of their sum; so
    the release clips segment embeddings on CPU and GPU, but not on TPU.

    Returns:
      The clipped gradients (all NaN if the norm is not finite) and the norm before clipping.
    """
    return tf.clip_by_global_norm(gradients, clip_norm)
