# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders in the layout of the TF1 releases."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.builders import SPECIAL_PIECES

#: Files of the fixture that releases do not have.
_NOT_RELEASED = ("checkpoint", "expected.npz")
#: The beginning of a vocabulary as that of the Chinese releases.
CHINESE_PIECES = (*SPECIAL_PIECES, "中", "国", "##国", "ab", "##c", "。")
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


def write_zip(path: Path, source: Path, folder: str = "") -> Path:
    """Writes the files of a folder as a .zip, below `folder`, with those that macOS adds."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(source.iterdir()):
            if file.name != "expected.npz":
                archive.write(file, f"{folder}{file.name}")
                archive.writestr(f"__MACOSX/{folder}._{file.name}", b"\0")
    return path
