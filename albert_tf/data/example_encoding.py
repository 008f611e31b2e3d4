# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Encodes many ``tf.train.Example`` messages at once.

Writes protobuf's wire format with NumPy, a feature of all examples at a time. Plain protobuf
(``tf.train.Example(...).SerializeToString(deterministic=True)``) produces the same bytes, but takes
several times as long.

An Example nests four deep. Tags are (field number << 3 | 2), where 2 means length-delimited:
Example.features(1) > Features.feature(1), a map entry > key(1), value(2), a Feature >
bytes_list(1) > value(1), or float_list(2) or int64_list(3) > value(1), packed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

#: Tag of the list of values within a Feature; other types are stored as bytes.
_LIST_TAGS = {"float32": b"\x12", "int64": b"\x1a"}
_BYTES_TAG = b"\n"


def encode_feature(name: str, dtype: str, values: np.ndarray, bounds: np.ndarray) -> list[bytes]:
    """Encodes one feature of n examples.

    Args:
      name: of the feature.
      dtype: "int64", "float32", or another NumPy type, whose numbers become bytes (little-endian).
      values: [m]: numbers of all examples, one after the other.
      bounds: int [n + 1]: example i has values[bounds[i]:bounds[i + 1]].

    Returns:
      n entries of the map Features.feature, with their tags.
    """
    if dtype == "int64":
        payload, ends = _pack_varints(values, bounds)
    else:
        stored = values.astype(np.dtype(dtype).newbyteorder("<"))
        payload, ends = stored.tobytes(), (stored.itemsize * bounds).tolist()
    return [
        _entry_head(name, dtype, end - start) + payload[start:end]
        for start, end in zip(ends, ends[1:])
    ]


def join_features(entries: Mapping[str, Sequence[bytes]]) -> list[bytes]:
    """Builds n serialized examples from the n entries of each feature, by its name."""
    examples = []
    for parts in zip(*(entries[name] for name in sorted(entries))):
        body = b"".join(parts)
        examples.append(b"\n" + _varint(len(body)) + body)
    return examples


def _pack_varints(values: np.ndarray, bounds: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes integers or bools [m] as varints; also returns `bounds` in bytes."""
    values = values.astype(np.int64).view(np.uint64)  # Varints have 64 bits: -1 takes ten bytes.
    largest = int(values.max(initial=0))
    if largest < 1 << 7:
        return values.astype(np.uint8).tobytes(), bounds.tolist()
    rest = values[:, None] >> np.arange(0, largest.bit_length(), 7, np.uint64)
    used = rest > 0
    used[:, 0] = True  # A zero takes a byte, too.
    groups = rest.astype(np.uint8) & 0x7F | (rest > 0x7F).view(np.uint8) << 7
    ends = np.concatenate([[0], np.cumsum(np.count_nonzero(used, axis=1))])
    return groups[used].tobytes(), ends[bounds].tolist()


@functools.lru_cache(maxsize=65536)
def _entry_head(name: str, dtype: str, payload_bytes: int) -> bytes:
    """Returns the bytes of a map entry that precede its values."""
    head = b""
    # From the inside: the packed values, their list, and the Feature.
    for tag in (b"\n", _LIST_TAGS.get(dtype, _BYTES_TAG), b"\x12"):
        head = tag + _varint(payload_bytes + len(head)) + head
    head = b"\n" + _varint(len(name.encode())) + name.encode() + head
    return b"\n" + _varint(payload_bytes + len(head)) + head


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
