# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""WeightedLayer, the base of all layers: variables with the names of the TF1 release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.keras2 import keras
from albert_tf.modeling.kernels.graph_mode import GraphMode, current_mode

#: A Keras precision policy or its name; None means the global one.
Policy = Union[str, keras.mixed_precision.Policy, None]
#: What models take and return, by name.
Inputs = Mapping[str, Tensor]
Outputs = dict[str, Tensor]
#: Kernel [inputs, outputs] and bias [outputs] of a dense layer.
Dense = tuple[Tensor, Tensor]


class WeightedLayer(keras.layers.Layer):
    """A layer that creates its variables in the constructor, under the TF1 release's names.

    Variables are float32 whatever the policy; `call` casts them once to the compute type. Layers
    that are created in the mode SERVED only answer: they keep the kernels of dense layers in the
    compute type, which saves the casts.

    Args:
      prefix: scope of the variables' names, such as "bert/pooler".
      initializer_range: standard deviation of the truncated normal initialiser of matrices.
      dtype: see Policy.
    """

    def __init__(self, prefix: str, initializer_range: float, dtype: Policy = None) -> None:
        super().__init__(name=prefix.replace("/", "_"), dtype=dtype, autocast=False)
        self._prefix = prefix
        self._initializer_range = initializer_range
        self._names = []
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Returns the variables by official name, in the order of creation."""
        return dict(zip(self._names, self.weights))

    def _variable(
        self, name: str, shape: list[int], initializer: Any, dtype: tf.DType | str = tf.float32
    ) -> tf.Variable:
        full_name = f"{self._prefix}/{name}" if self._prefix else name
        self._names.append(full_name)
        # Autocast variables would be cast again in every layer that shares them.
        return self.add_weight(full_name, shape, dtype, initializer, experimental_autocast=False)

    def matrix(
        self, name: str, shape: list[int], dtype: tf.DType | str = tf.float32
    ) -> tf.Variable:
        """Creates a truncated-normal matrix."""
        initializer = keras.initializers.TruncatedNormal(stddev=self._initializer_range)
        return self._variable(name, shape, initializer, dtype)

    def vector(self, name: str, size: int, value: str = "zeros") -> tf.Variable:
        """Creates a vector of zeros or ones."""
        return self._variable(name, [size], value)

    def dense(self, name: str, inputs: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
        """Creates the kernel [inputs, outputs] and the bias [outputs] of a dense layer."""
        dtype = self.compute_dtype if current_mode() is GraphMode.SERVED else tf.float32
        kernel = self.matrix(f"{name}/kernel", [inputs, outputs], dtype)
        return kernel, self.vector(f"{name}/bias", outputs)

    def norm(self, name: str, size: int) -> tuple[tf.Variable, tf.Variable]:
        """Creates gamma and beta [size] of a layer normalisation and returns them in this order."""
        beta = self.vector(f"{name}/beta", size)  # The release creates it first.
        return self.vector(f"{name}/gamma", size, "ones"), beta


def dimension(x: Tensor, axis: int) -> int | Tensor:
    """Returns the length of an axis: an int where it is known, otherwise an int32 scalar."""
    return x.shape[axis] or tf.shape(x)[axis]
