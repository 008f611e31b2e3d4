# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Saves objects that hub.KerasLayer can wrap, with their assets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.io import files


class ReusableSavedModel(tf.__internal__.tracking.AutoTrackable):
    """An object with TF-Hub's Reusable SavedModel interface.

    It holds variables and traced functions, but no Keras objects, so the SavedModel loads without
    Keras and contains no path of a Python file.

    Args:
      call: a tf.function, traced for all the arguments it will be called with.
      weights: the variables that it reads.
      trainable: whether they can be trained.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        weights: Sequence[tf.Variable] = (),
        trainable: bool = True,
    ) -> None:
        super().__init__()
        self.variables = list(weights)
        self.trainable_variables = list(weights) if trainable else []
        self.regularization_losses = []
        self.__call__ = call


def write_saved_model(
    root: ReusableSavedModel,
    signatures: Mapping[str, Any],
    folder: str,
    assets: Mapping[str, tuple[str, bytes]] | None = None,
) -> None:
    """Saves an object.

    Args:
      root: the object.
      signatures: concrete functions by name.
      folder: the folder to write to.
      assets: file name and content of assets, by the root's attribute.
    """
    # The graph contains the paths of assets, which must not reveal folders of this machine.
    with tempfile.TemporaryDirectory() as temporary:
        for name, (file_name, content) in (assets or {}).items():
            source = os.path.join(temporary, file_name)
            files.write_bytes(source, content)
            setattr(root, name, tf.saved_model.Asset(source))
        tf.saved_model.save(root, folder, dict(signatures))
