# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the output folders of two runs bit by bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

#: Values of metrics.jsonl that depend on the clock.
CLOCK = ("examples_per_second", "tokens_per_second", "input_wait_share")


@dataclasses.dataclass
class Comparison:
    """The number of bytes that were compared, and a line for each difference."""

    compared: int = 0
    differences: list[str] = dataclasses.field(default_factory=list)

    def add(self, what: str, expected: bytes, actual: bytes) -> None:
        """Compares two values."""
        self.compared += len(expected)
        if expected != actual:
            self.differences.append(what)


def compare(expected: Path, actual: Path) -> Comparison:
    """Compares two output folders.

    Compares the names in TensorFlow's list of checkpoints, every tensor of checkpoints, every value
    of metrics.jsonl that does not depend on the clock, and every byte of all other files. Ignores
    TensorBoard's events, as their names and contents hold times. A file in only one folder is a
    difference, even a temporary one.
    """
    result = Comparison()
    names = _names(expected)
    for name in sorted(names ^ _names(actual)):
        result.differences.append(f"{name} is {'missing' if name in names else 'left over'}")
    for name in sorted(names & _names(actual)):
        one, other = expected / name, actual / name
        if name.endswith(".index"):
            _compare_checkpoints(str(one)[:-6], str(other)[:-6], name, result)
        elif one.name == "checkpoint":
            result.add(name, _list(one), _list(other))
        elif one.name == "metrics.jsonl":
            result.add(name, _log(one), _log(other))
        elif ".data-" not in name:
            result.add(name, one.read_bytes(), other.read_bytes())
    return result


def _names(folder: Path) -> set[str]:
    """Paths of the files and of empty folders."""
    paths = (path for path in folder.rglob("*") if path.is_file() or not any(path.iterdir()))
    return {str(path.relative_to(folder)) for path in paths if "events" not in path.parts}


def _compare_checkpoints(one: str, other: str, name: str, result: Comparison) -> None:
    expected, actual = tf.train.load_checkpoint(one), tf.train.load_checkpoint(other)
    shapes = expected.get_variable_to_shape_map()
    if shapes != actual.get_variable_to_shape_map():
        result.differences.append(f"{name}: other tensors")
        return
    for key in shapes:
        # The graph of Python objects: how the tensors' keys came about.
        if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
            tensors = [np.asarray(reader.get_tensor(key)) for reader in (expected, actual)]
            result.add(f"{name}: {key}", *(_bytes(tensor) for tensor in tensors))


def _bytes(tensor: np.ndarray) -> bytes:
    head = f"{tensor.dtype} {tensor.shape} ".encode()
    return head + (bytes(tensor.item()) if tensor.dtype == object else tensor.tobytes())


def _list(path: Path) -> bytes:
    lines = path.read_text().splitlines()
    return "\n".join(line for line in lines if "timestamp" not in line).encode()


def _log(path: Path) -> bytes:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in entry.items() if k not in CLOCK} for entry in entries]
    return "\n".join(map(json.dumps, kept)).encode()
