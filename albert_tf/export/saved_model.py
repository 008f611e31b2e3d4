# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Objects that hub.KerasLayer can wrap, saved with their assets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.io import files


class Reusable(tf.__internal__.tracking.AutoTrackable):
    """What hub.KerasLayer expects of an object in a SavedModel.

    It holds variables and traced functions, and no Keras objects: what is saved then needs no
    Keras to load, and no path of a Python file.

    Args:
      call: a tf.function, traced for everything that it is to be called with.
      weights: the variables that it reads.
      trainable: whether it can be trained.
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
    root: Reusable,
    signatures: Mapping[str, Any],
    folder: str,
    assets: Mapping[str, tuple[str, bytes]] | None = None,
) -> None:
    """Saves an object.

    Args:
      root: what is saved.
      signatures: concrete functions by name.
      folder: where to.
      assets: attributes to add to the root, as file name and content; tf.saved_model.Asset.
    """
    # The names of assets are part of the graph: of a folder that tells nothing of this machine.
    with tempfile.TemporaryDirectory() as temporary:
        for name, (file_name, content) in (assets or {}).items():
            source = os.path.join(temporary, file_name)
            files.write_bytes(source, content)
            setattr(root, name, tf.saved_model.Asset(source))
        tf.saved_model.save(root, folder, dict(signatures))
