# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders such as those that the TF1 releases come as."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

TF1_TINY = Path(__file__).parents[1] / "golden" / "tf1_tiny"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_release(folder: Path, vocabulary: str, pieces: Sequence[str] = SPECIAL) -> Path:
    """Copies the TF1 fixture and puts a WordPiece vocabulary beside it.

    Args:
      folder: to be made.
      vocabulary: name of the vocabulary's file.
      pieces: the first ones; further ones are made up, as many as the model has.

    Returns:
      The folder.
    """
    shutil.copytree(TF1_TINY, folder)
    more = (f"p{i}" for i in range(120 - len(pieces)))
    (folder / vocabulary).write_text("\n".join([*pieces, *more]) + "\n")
    return folder
