# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders in the layout of the TF1 releases."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.builders import SPECIAL_PIECES

#: Files of the fixture that releases do not have.
_NOT_RELEASED = ("checkpoint", "expected.npz")
TF1_TINY = Path(__file__).parents[1] / "golden" / "tf1_tiny"


def write_release(folder: Path, vocabulary: str, pieces: Sequence[str] = SPECIAL_PIECES) -> Path:
    """Copies the TF1 fixture, adds a WordPiece vocabulary and returns the folder.

    Args:
      folder: the folder to create.
      vocabulary: name of the vocabulary file.
      pieces: the first pieces; filled up to the size of the model's vocabulary.
    """
    shutil.copytree(TF1_TINY, folder)
    more = (f"p{i}" for i in range(120 - len(pieces)))
    (folder / vocabulary).write_text("\n".join([*pieces, *more]) + "\n")
    return folder


def write_archive(path: Path) -> Path:
    """Writes the TF1 fixture as a release: a folder in a .tar.gz, without the file `checkpoint`."""
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(TF1_TINY.iterdir()):
            if file.name not in _NOT_RELEASED:
                archive.add(file, f"albert_tiny/{file.name}")
    return path
