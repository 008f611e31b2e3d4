# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbered version folders, as TensorFlow Serving reads them: models/rte/1, models/rte/2, …"""

from __future__ import annotations

import os

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown


def version_folder(path: str, version: int | None, overwrite: bool = False) -> str:
    """Returns the folder of one version of a model.

    Args:
      path: the folder of the model's versions.
      version: the number of the version; None returns `path`.
      overwrite: accept a version that exists.

    Raises:
      AlbertError: the version exists, or is not a positive integer that int64 can hold, the type
        that TensorFlow Serving reads.
    """
    if version is None:
        return path
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**63:
        raise AlbertError(f"`version`={shown(version)} must be an integer from 1 to 2^63 - 1.")
    folder = os.path.join(path, str(version))
    if not overwrite and files.exists(folder):
        raise AlbertError(
            f"{path} has a version {version} already; give another `version`, or set `overwrite` "
            "to replace it."
        )
    return folder


def export_name(path: str) -> str:
    """Returns the name of the export at a path; that of a version includes its model's folder."""
    parts = path.rstrip("/").rsplit("/", 2)
    return "/".join(parts[-2:] if parts[-1].isdecimal() else parts[-1:])
