# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The pretrained models that come with this package, by name.

Each lies in a folder of its name: a Hugging Face folder with float16 weights, README.md (its model
card) and manifest.json (sizes and checksums of the files, and how they were made).
"""

from __future__ import annotations

import os

from albert_tf.errors import AlbertError
from albert_tf.io import files

#: Where the models' folders are.
FOLDER = os.path.dirname(os.path.abspath(__file__))
MANIFEST_FILE = "manifest.json"
#: What fine-tuning starts from if nothing else is asked for.
DEFAULT = "albert_tiny_books"
#: In the place of a model: random weights.
NONE = "none"


def bundled_names() -> list[str]:
    """The names of the bundled models, sorted."""
    # Part of the package, hence on the local file system.
    return sorted(
        entry.name
        for entry in os.scandir(FOLDER)
        if os.path.exists(os.path.join(entry.path, MANIFEST_FILE))
    )


def resolve_name(path: str) -> str:
    """The folder of the bundled model whose name `path` is; else, or if `path` exists, `path`."""
    return path if _is_there(path) or path not in bundled_names() else os.path.join(FOLDER, path)


def check_model(path: str) -> None:
    """Raises AlbertError if nothing lies at a path that could be a model, and none has that name.

    Args:
      path: what --init_checkpoint takes.
    """
    if path not in (NONE, *bundled_names()) and not _is_there(path):
        raise no_model(path)


def no_model(path: str) -> AlbertError:
    """The error for a path where there is no model."""
    return AlbertError(
        f"There is no checkpoint at {path}; give an output directory of a run, a folder or "
        "archive of a release, a Hugging Face folder, a SavedModel, the name of a checkpoint "
        f"without its .index ending, or that of a bundled model ({', '.join(bundled_names())})."
    )


def _is_there(path: str) -> bool:
    return any(files.exists(name) for name in (path, f"{path}.index"))
