# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts the kernels of a training step on a GPU, and the bytes that they read and write.

Apart from matrix products, most of a step's time goes into memory access. TensorFlow runs one
kernel for each operation, XLA one for several. Neither count needs a GPU. TensorFlow's is taken
from the graph before its graph optimizer, which joins a few operations; XLA's is taken by "compile"
from the compiled program. Operations that move less than 4 KiB are not counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    import tensorflow as tf

_GIB, _LEAST = 2**30, 4096
_SHAPE = re.compile(r"\b(pred|bf16|[fsu]\d+)\[([\d,]*)\]")
#: The name, the type and the kind of an instruction.
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*?) ([\w-]+)\(", re.M)
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
#: TensorFlow's operations that move nothing, or only tell shapes.
_FREE_OPERATIONS = {"BroadcastGradientArgs", "ConcatOffset", "Const", "EnsureShape", "ExpandDims"}
_FREE_OPERATIONS |= {"Fill", "Identity", "IdentityN", "NoOp", "Pack", "Placeholder", "Range"}
_FREE_OPERATIONS |= {"ReadVariableOp", "Reshape", "Shape", "ShapeN", "Size", "Squeeze"}
_FREE_OPERATIONS |= {"PartitionedCall", "StatefulPartitionedCall", "StridedSlice", "While"}


def of_hlo(text: str) -> dict[str, float]:
    """Counts in the text of a compiled HLO module; loops count as one kernel.

    Returns:
      "kernels" and "moved_gib".
    """
    entry = text[text.index("\nENTRY") :]
    bytes_of: dict[str, int] = {}
    kernels = moved = 0
    for match in _INSTRUCTION.finditer(entry):
        name, result, kind = match.groups()
        bytes_of[name] = sum(_bytes(*shape) for shape in _SHAPE.findall(result))
        operands = entry[match.end() : entry.index(")", match.end())]
        read = sum(bytes_of.get(name, 0) for name in re.findall(r"%([\w.-]+)", operands))
        if kind not in _FREE and bytes_of[name] + read >= _LEAST:
            kernels += 1
            moved += bytes_of[name] + read
    return {"kernels": kernels, "moved_gib": round(moved / _GIB, 1)}


def _bytes(dtype: str, dimensions: str) -> int:
    bits = 8 if dtype == "pred" else int(dtype.lstrip("bfsu"))
    elements = 1
    for size in filter(None, dimensions.split(",")):
        elements *= int(size)
    return elements * bits // 8


def of_graph(graph: tf.Graph) -> dict[str, float]:
    """Counts in a graph of TensorFlow and the functions it calls; see `of_hlo`."""
    kernels = moved = 0
    for part in _parts(graph, set()):
        for op in _needed(part):
            tensors = [t for t in (*op.inputs, *op.outputs) if t.dtype.size]
            size = sum((t.shape.num_elements() or 0) * t.dtype.size for t in tensors)
            if op.type not in _FREE_OPERATIONS and size >= _LEAST:
                kernels += 1
                moved += size
    return {"kernels": kernels, "moved_gib": round(moved / _GIB, 1)}


def _parts(graph: Any, seen: set[str]) -> Iterator[Any]:
    yield graph
    for name, function in graph._functions.items():
        if name not in seen:
            seen.add(name)
            yield from _parts(function.graph, seen)


def _needed(graph: Any) -> set[tf.Operation]:
    """The operations that the outputs of a graph depend on."""
    todo, needed = [*(output.op for output in graph.outputs), *graph.control_outputs], set()
    while todo:
        op = todo.pop()
        if op not in needed:
            needed.add(op)
            todo += [*(value.op for value in op.inputs), *op.control_inputs]
    return needed


def define_flags() -> None:
    """Defines the flags."""
    from absl import flags

    from benchmarks.gpu_step.emit import PROGRAMS
    from benchmarks.random_step import PRECISIONS

    flags.DEFINE_list("programs", list(PROGRAMS), "Steps, config:length:rows each.")
    flags.DEFINE_enum("precision", "bf16", list(PRECISIONS), "Compute type of the products.")


def main() -> None:
    """Prints a line of JSON for each step as TensorFlow runs it on a GPU without XLA."""
    import tensorflow as tf
    from absl import flags

    from albert_tf.config import AlbertConfig
    from benchmarks.gpu_step.emit import parse_shape
    from benchmarks.random_step import PRECISIONS, RandomStep

    for text in flags.FLAGS.programs:
        shape = parse_shape(text)
        # The graph is that of a machine with a GPU; it is not run.
        with mock.patch.object(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"]):
            precision = PRECISIONS[flags.FLAGS.precision]
            config = AlbertConfig.load(shape.config)
            step = RandomStep(config, shape.seq_length, shape.rows, precision, jit_compile=False)
            loop = step._loop._loop.get_concrete_function(step._batches, tf.constant(1))
        print(json.dumps({"program": shape.folder, **of_graph(loop.graph)}), flush=True)
