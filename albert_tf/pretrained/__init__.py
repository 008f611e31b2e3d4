# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The names of pretrained models, and the models that come with this package.

`locate` turns any name into a path. Each bundled model has a folder of its name here: a Hugging
Face folder with float16 weights, README.md (the model card) and manifest.json (sizes and checksums
of the files, and how they were made).
"""

from __future__ import annotations

import os

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
