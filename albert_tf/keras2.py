# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras 2, which the models are built on: `from albert_tf.keras2 import keras`.

Up to TensorFlow 2.15, `tf.keras` is Keras 2. From 2.16 on, Keras 2 is the package `tf_keras`, and
`tf.keras` is Keras 3 unless the environment variable TF_USE_LEGACY_KERAS is set. We import the
package by its name, which works with or without the variable and in any order of imports.

docs/architecture.md explains why the models are not Keras 3 models.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError

_ADVICE = (
    "Build everything around it with the same Keras (from albert_tf import keras), or set "
    "TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, which makes tf.keras the same."
)


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


#: The versions of tf_keras are those of TensorFlow, and pip keeps them together.
keras = tf.keras if tf.__version__.startswith("2.15.") else importlib.import_module("tf_keras")


def check_same_keras(name: str, values: Iterable[Any]) -> None:
    """Checks that a model is not mixed with another Keras.

    Takes the name of its class, and the arguments of its call. Raises AlbertError if one of them is
    an object of another Keras, or if a Keras 3 layer calls the model.
    """
    ours = _package(keras.Model)
    version = sys.modules[ours].__version__
    refused = f"{name} is built on {ours} {version} (Keras 2) and cannot be"
    for value in values:
        package = _package(type(value))
        if package in ("keras", "tf_keras") and package != ours:
            other = f"{package} {sys.modules[package].__version__}"
            raise AlbertError(f"{refused} given a {type(value).__name__} of {other}. {_ADVICE}")
    # Keras 3 has no public function for whether a layer is being called.
    state = sys.modules.get("keras.src.backend.common.global_state")
    if state and state.get_global_attribute("current_call_ctx"):
        raise AlbertError(
            f"{refused} called by a Keras 3 layer, which would neither train nor save its weights. "
            f"{_ADVICE}"
        )
