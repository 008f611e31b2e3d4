# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Damage to files, as crashes, full disks and bad memory do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf


def flip(path: Path, at: int) -> None:
    """Inverts one bit of a byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << at % 8
    path.write_bytes(data)


#: Each does its kind of damage to a file.
DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "a bit flipped": lambda path: flip(path, 20),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


def files_below(folder: Path) -> dict[str, bytes]:
    """All files by path from the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def stored(prefix: Path | str) -> dict[str, bytes]:
    """What a checkpoint holds, bit for bit, but for the number of times its run has saved."""
    reader = tf.train.load_checkpoint(str(prefix))

    def values() -> Iterator[tuple[str, bytes]]:
        for key in reader.get_variable_to_shape_map():
            value = reader.get_tensor(key)
            yield key, value if isinstance(value, bytes) else value.tobytes()

    return {key: value for key, value in values() if "save_counter" not in key}
