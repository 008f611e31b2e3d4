# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras 2, which the models are built on: `from albert_tf.keras2 import keras`.

Up to TensorFlow 2.15, `tf.keras` is Keras 2. From 2.16 on, Keras 2 is the package `tf_keras`, and
`tf.keras` is Keras 3 unless the environment variable TF_USE_LEGACY_KERAS is set. We import the
package by its name, which works with or without the variable and in any order of imports.

docs/architecture.md explains why the models are not Keras 3 models.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError

__all__ = ["check_same_keras", "keras"]

_ADVICE = (
    "Build everything around it with the same Keras (from albert_tf import keras), or set "
    "TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, which makes tf.keras the same."
)


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _keras_2() -> ModuleType:
    """Returns Keras 2 for the TensorFlow that is installed.

    Raises:
      AlbertError: it is not installed, or it is for another version of TensorFlow.
    """
    release = ".".join(map(str, _minor(tf.__version__)))
    install = f'Install it: pip install "tf_keras=={release}.*"'
    if _minor(tf.__version__) < (2, 16):
        if hasattr(tf.keras, "version"):  # New in Keras 3.
            raise AlbertError(
                f"albert_tf needs Keras 2, but TensorFlow {tf.__version__} found Keras "
                f'{tf.keras.version()}. Install Keras 2: pip install "keras=={release}.*"'
            )
        return tf.keras
    try:
        import tf_keras
    except ImportError as error:
        raise AlbertError(
            f"albert_tf needs Keras 2, which for TensorFlow {tf.__version__} is the package "
            f"tf_keras, and it cannot be imported ({error}). {install}"
        ) from error
    if _minor(tf_keras.__version__) != _minor(tf.__version__):
        raise AlbertError(
            f"tf_keras {tf_keras.__version__} is not for TensorFlow {tf.__version__}. {install}"
        )
    return tf_keras


keras = _keras_2()


def check_same_keras(name: str, values: Iterable[Any] = ()) -> None:
    """Checks that a model is not mixed with another Keras.

    Args:
      name: name of the model's class.
      values: the arguments of its call.

    Raises:
      AlbertError: a value is an object of another Keras, or the model is called inside a Keras 3
        layer, which would not know the model's weights.
    """
    ours = keras.Model.__module__.partition(".")[0]
    version = sys.modules[ours].__version__
    refused = f"{name} is built on {ours} {version} (Keras 2) and cannot be"
    for value in values:
        package = type(value).__module__.partition(".")[0]
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
