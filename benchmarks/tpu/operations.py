# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a compiled program spends memory accesses and time on, read from its text.

The compiler writes its estimate of cycles into the program. Bytes are those of an operation's
inputs and outputs in the device's main memory, with the padding of their layouts; what the compiler
keeps in the memory on the chip, `S(1)` in the text, does not count.
"""

from __future__ import annotations

import collections
import dataclasses
import gzip
import math
import re

_BITS = re.compile(r"\d+")
_SHAPE = re.compile(r"(pred|[subf]\d+|bf16)\[([\d,]*)\](?:\{([\d,]*)(:[^}]*)?\})?")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?(%[\w.-]+) = ")
_OPERATION = re.compile(r" ([\w-]+)\(")
_TILE = re.compile(r"T\((\d+),(\d+)\)")
_NAME = re.compile(r'op_name="([^"]*)"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
GB = 1e9
#: Operations that only name values or wait for them.
_FREE = {"get-tuple-element", "tuple", "bitcast", "parameter", "constant"}


@dataclasses.dataclass
class Operations:
    """Operations of one kind, type and origin.

    Attributes:
      count: how many there are.
      bytes_read: by all of them.
      bytes_written: by all of them.
      cycles: the compiler's estimate for all of them.
    """

    count: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    cycles: int = 0


def main_memory_bytes(types: str) -> int:
    """Returns the bytes that the arrays in a type take in main memory."""
    total = 0
    for kind, dimensions, order, layout in _SHAPE.findall(types):
        sizes = [int(size) for size in dimensions.split(",") if size]
        if "S(1)" in layout:
            continue
        tile = _TILE.search(layout)
        if tile and sizes:
            # The layout lists the dimensions from the one with adjacent elements on.
            for axis, multiple in zip(map(int, order.split(",")), map(int, tile.groups()[::-1])):
                sizes[axis] = -(-sizes[axis] // multiple) * multiple
        bits = _BITS.search(kind)
        total += math.prod(sizes) * max(1, int(bits.group()) // 8 if bits else 1)
    return total


def _accessed(kind: str, arguments: list[str], written: str) -> tuple[int, int]:
    """Returns the bytes that an operation reads and writes.

    Args:
      kind: of the operation.
      arguments: types of its inputs.
      written: type of its output.
    """
    if kind not in ("copy-start", "slice-start"):
        return sum(map(main_memory_bytes, arguments)), main_memory_bytes(written)
    # These begin to copy between the main memory and that on the chip. Their outputs are the copy,
    # before or after the source, and a number.
    shapes = [match.group() for match in _SHAPE.finditer(written)]
    copy = shapes[0 if kind == "copy-start" else -2]
    size = main_memory_bytes(copy.replace("S(1)", ""))
    return size * bool(main_memory_bytes(arguments[0])), main_memory_bytes(copy)


def read_operations(path: str) -> dict[tuple[str, str, str], Operations]:
    """Returns the operations of a program's main computation.

    Args:
      path: of a file that compiler.py kept.

    Returns:
      Operations by kind, type without layout, and last part of TensorFlow's or JAX's name.
    """
    with gzip.open(path, "rt", encoding="utf-8") as f:
        text = f.read()
    types: dict[str, str] = {}
    found: dict[tuple[str, str, str], Operations] = collections.defaultdict(Operations)
    for line in text[text.index("\nENTRY ") :].splitlines():
        named = _INSTRUCTION.match(line)
        if not named:
            continue
        rest = line[named.end() - 1 :]
        operation = _OPERATION.search(rest)
        if operation is None:
            continue
        written, kind = rest[: operation.start()], operation.group(1)
        types[named.group(1)] = written
        if kind in _FREE or kind.endswith("-done"):
            continue
        arguments = re.findall(r"%[\w.-]+", rest[operation.end() :].split("), ")[0])
        name, cycles = _NAME.search(line), _CYCLES.search(line)
        origin = re.sub(r"_\d+$", "", name.group(1).split("/")[-1]) if name else ""
        entry = found[kind, re.sub(r"\{[^}]*\}", "", written).strip(), origin]
        read, wrote = _accessed(kind, [types.get(x, "") for x in arguments], written)
        entry.count += 1
        entry.bytes_read += read
        entry.bytes_written += wrote
        entry.cycles += int(cycles.group(1)) if cycles else 0
    return dict(found)


def operations_table(path: str, top: int) -> str:
    """Returns the operations that access most memory as a Markdown table."""
    found = read_operations(path)
    read = sum(x.bytes_read for x in found.values())
    written = sum(x.bytes_written for x in found.values())
    cycles = sum(x.cycles for x in found.values())
    rows = [
        "| operation | origin | type | count | read GB | written GB | cycles, millions |",
        "|---|---|---|---|---|---|---|",
        f"| all | | | | {read / GB:.2f} | {written / GB:.2f} | {cycles / 1e6:.1f} |",
    ]
    order = sorted(found.items(), key=lambda x: -x[1].bytes_read - x[1].bytes_written)
    for (kind, written_type, origin), x in order[:top]:
        rows.append(
            f"| {kind} | {origin} | {written_type} | {x.count} | {x.bytes_read / GB:.2f} "
            f"| {x.bytes_written / GB:.2f} | {x.cycles / 1e6:.1f} |"
        )
    return "\n".join(rows)
