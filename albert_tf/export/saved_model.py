# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Objects that hub.KerasLayer can wrap, and SavedModels that appear only when complete."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import AlbertError


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
    path: str,
    assets: Mapping[str, tuple[str, bytes]] | None = None,
) -> None:
    """Saves an object as a folder that is either complete or absent.

    Args:
      root: what is saved.
      signatures: concrete functions by name.
      path: the folder to make.
      assets: attributes to add to the root, as file name and content; tf.saved_model.Asset.

    Raises:
      AlbertError: there is something at `path` already.
    """
    gfile = tf.io.gfile
    path = path.rstrip("/")
    if gfile.exists(path):
        raise AlbertError(f"{path} exists already; delete it, or give another path.")
    if os.path.dirname(path):
        gfile.makedirs(os.path.dirname(path))
    temporary = f"{path}.tmp-{uuid.uuid4().hex[:8]}"
    # The names of assets are part of the graph: of a folder that tells nothing of this machine.
    with tempfile.TemporaryDirectory() as folder:
        for name, (file_name, content) in (assets or {}).items():
            source = os.path.join(folder, file_name)
            files.write_bytes(source, content)
            setattr(root, name, tf.saved_model.Asset(source))
        try:
            tf.saved_model.save(root, temporary, dict(signatures))
            gfile.rename(temporary, path)
        except BaseException:
            if gfile.exists(temporary):
                gfile.rmtree(temporary)
            raise
