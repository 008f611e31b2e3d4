# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The class LAMB: tensorflow-addons' where it works, otherwise ours with the same results.

Only this module imports tensorflow-addons, which works with TensorFlow 2.15 and older.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import tensorflow as tf

from albert_tf.keras2 import keras

__all__ = ["LAMB", "OwnLamb"]


class OwnLamb(keras.optimizers.legacy.Optimizer):
    """LAMB (You et al., 2020, algorithm 2), for dense gradients.

    The results are those of tensorflow_addons.optimizers.LAMB, bit for bit. The slots and
    hyperparameters are the same, so checkpoints of one load in the other, and subclasses override
    the same methods.

    Args:
      learning_rate: a number, a schedule, or a function without arguments that returns a number.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the square root of the second moment.
      weight_decay: multiple of the weight that is added to its update.
      name: name of the optimizer.
      **kwargs: passed to the base class.
    """

    def __init__(
        self,
        learning_rate: float | Callable = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        name: str = "LAMB",
        **kwargs: object,
    ) -> None:
        super().__init__(name, **kwargs)
        self.epsilon = epsilon
        # `decay` is unused, but it is a variable in tensorflow-addons' checkpoints.
        for hyperparameter, value in {
            "learning_rate": learning_rate,
            "beta_1": beta_1,
            "beta_2": beta_2,
            "weight_decay": weight_decay,
            "decay": self._initial_decay,
        }.items():
            self._set_hyper(hyperparameter, value)

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        for slot in ("m", "v"):
            for variable in var_list:
                self.add_slot(variable, slot)

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)  # The learning rate, `lr_t`.
        step = tf.cast(self.iterations + 1, var_dtype)
        coefficients = apply_state[var_device, var_dtype]
        for beta in ("beta_1", "beta_2"):
            value = tf.identity(self._get_hyper(beta, var_dtype))
            coefficients[f"{beta}_t"] = value
            coefficients[f"one_minus_{beta}_t"] = 1 - value
            coefficients[f"{beta}_power"] = tf.pow(value, step)
        coefficients["weight_decay"] = tf.identity(self._get_hyper("weight_decay", var_dtype))
        coefficients["epsilon"] = tf.constant(self.epsilon, var_dtype)

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: dict | None = None
    ) -> tf.Operation:
        place = var.device, var.dtype.base_dtype
        coefficients = (apply_state or {}).get(place) or self._fallback_apply_state(*place)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m_new = m.assign(m * coefficients["beta_1_t"] + grad * coefficients["one_minus_beta_1_t"])
        v_new = v.assign(
            v * coefficients["beta_2_t"] + grad * grad * coefficients["one_minus_beta_2_t"]
        )
        m_unbiased = m_new / (1.0 - coefficients["beta_1_power"])
        v_unbiased = v_new / (1.0 - coefficients["beta_2_power"])
        update = m_unbiased / (tf.sqrt(v_unbiased) + coefficients["epsilon"])
        if self._do_use_weight_decay(var):
            update += coefficients["weight_decay"] * var
        step_size = coefficients["lr_t"]
        if self._do_layer_adaptation(var):
            weight_norm, update_norm = tf.norm(var), tf.norm(update)
            both_positive = (weight_norm > 0) & (update_norm > 0)
            step_size = tf.where(both_positive, weight_norm / update_norm, 1.0) * step_size
        return var.assign(var - step_size * update)

    def _do_use_weight_decay(self, variable: tf.Variable) -> bool:
        """Returns whether the variable has weight decay; subclasses override this."""
        del variable
        return True

    def _do_layer_adaptation(self, variable: tf.Variable) -> bool:
        """Returns whether the variable's norm scales its update; subclasses override this."""
        del variable
        return True


def _lamb() -> type[keras.optimizers.legacy.Optimizer]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Its end of life does not matter: it is pinned.
            from tensorflow_addons.optimizers import LAMB
    except ImportError:
        return OwnLamb
    return LAMB


LAMB = _lamb()
