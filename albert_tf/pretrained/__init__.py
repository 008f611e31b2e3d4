# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The pretrained models that come with this package, by name.

Each has a folder of its name: a Hugging Face folder with float16 weights, README.md (the model
card) and manifest.json (sizes and checksums of the files, and how they were made).
"""

from __future__ import annotations

import os

from albert_tf.errors import AlbertError
from albert_tf.io import files

#: The folder that contains the models' folders.
FOLDER = os.path.dirname(os.path.abspath(__file__))
MANIFEST_FILE = "manifest.json"
#: The model that fine-tuning starts from by default.
DEFAULT = "albert_tiny_books"
#: Stands for random weights in place of a model.
NONE = "none"


def bundled_names() -> list[str]:
    """Returns the names of the bundled models, sorted."""
    return sorted(
        entry.name
        for entry in os.scandir(FOLDER)
        if os.path.exists(os.path.join(entry.path, MANIFEST_FILE))
    )


def resolve_name(path: str) -> str:
    """Returns the folder of a bundled model, given its name; other and existing paths unchanged."""
    return path if _exists(path) or path not in bundled_names() else os.path.join(FOLDER, path)


def check_model(path: str) -> None:
    """Raises AlbertError unless `path` exists, or is the name of a bundled model or NONE."""
    if path not in (NONE, *bundled_names()) and not _exists(path):
        raise no_model(path)


def no_model(path: str) -> AlbertError:
    """Returns the error for a path where there is no model."""
    return AlbertError(
        f"There is no checkpoint at {path}; give an output directory of a run, a folder or "
        "archive of a release, a Hugging Face folder, a SavedModel, the name of a checkpoint "
        f"without its .index ending, or that of a bundled model ({', '.join(bundled_names())})."
    )


def _exists(path: str) -> bool:
    return any(files.exists(name) for name in (path, f"{path}.index"))
