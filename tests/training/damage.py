# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Damages files as crashes, full disks and bad memory do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf


def flip(path: Path, at: int) -> None:
    """Inverts one bit of a byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << at % 8
    path.write_bytes(data)


#: Kinds of damage to a file.
DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "a bit flipped": lambda path: flip(path, 20),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


def files_below(folder: Path) -> dict[str, bytes]:
    """The contents of all files, by path relative to the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def stored(prefix: Path | str) -> dict[str, bytes]:
    """The values of a checkpoint, bit for bit, without the number of times its run has saved."""
    reader = tf.train.load_checkpoint(str(prefix))
    keys = [key for key in reader.get_variable_to_shape_map() if "save_counter" not in key]
    values = {key: reader.get_tensor(key) for key in keys}
    return {k: v if isinstance(v, bytes) else v.tobytes() for k, v in values.items()}
