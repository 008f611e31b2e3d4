# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The safetensors format: length of a JSON header, the header, the tensors' bytes. No pickle.

Layout: uint64 (little endian) n, n bytes of JSON mapping names to `dtype`, `shape` and
`data_offsets` [begin, end) in what follows, where the tensors lie without gaps.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import JSON_ERRORS, shown

_MAX_HEADER = 100 << 20
#: int64 occurs in a table of positions that old files hold besides the weights.
_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64}
_WRITTEN = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16"}


class _Tensor(NamedTuple):
    dtype: str
    shape: list[int]
    begin: int
    end: int


class SafetensorsFile:
    """A file whose header has been checked against its size; tensors are read one by one.

    Attributes:
      shapes: by name.

    Raises:
      AlbertError: the file is missing, cut off, or not of the format.
    """

    def __init__(self, path: str) -> None:
        if not tf.io.gfile.exists(path):
            raise AlbertError(f"The weights {path} do not exist.")
        self._path = path
        size = tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as f:
            start = f.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            if length > min(size - 8, _MAX_HEADER):
                raise self._damaged("its header is longer than the file")
            header = f.read(length)
        self._data = 8 + length
        try:
            values = json.loads(header.decode("utf-8"))
            values.pop("__metadata__", None)
            self._tensors = {
                name: _Tensor(
                    v["dtype"], [int(d) for d in v["shape"]], *map(int, v["data_offsets"])
                )
                for name, v in values.items()
            }
        except (*JSON_ERRORS, AttributeError, KeyError, OverflowError, TypeError) as error:
            raise self._damaged("its header is no JSON of the format") from error
        self._check(size - self._data)
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def _damaged(self, reason: str) -> AlbertError:
        return AlbertError(
            f"{self._path} is no intact safetensors file ({reason}); get it once more."
        )

    def _check(self, size: int) -> None:
        position = 0
        for name, tensor in sorted(self._tensors.items(), key=lambda item: item[1][2:]):
            if not isinstance(tensor.dtype, str) or tensor.dtype not in _DTYPES:
                raise AlbertError(
                    f"{self._path}: {shown(name)} is of type {shown(tensor.dtype)}, not float."
                )
            count = math.prod(tensor.shape) * np.dtype(_DTYPES[tensor.dtype]).itemsize
            if tensor.begin != position or tensor.end - tensor.begin != count:
                raise self._damaged(f"{shown(name)} does not lie where it should")
            position = tensor.end
        if position != size:
            raise self._damaged(f"{size:,} bytes of tensors instead of {position:,}")

    def read(self, name: str) -> np.ndarray:
        """A tensor; float16 and bfloat16 become float32, which is exact."""
        tensor = self._tensors[name]
        with tf.io.gfile.GFile(self._path, "rb") as f:
            f.seek(self._data + tensor.begin)
            data = f.read(tensor.end - tensor.begin)
        values = np.frombuffer(data, np.dtype(_DTYPES[tensor.dtype]).newbyteorder("<"))
        if tensor.dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        elif tensor.dtype == "F16":
            values = values.astype(np.float32)
        return values.reshape(tensor.shape)


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes float32 and float16 tensors, sorted by name, as Hugging Face's library for PyTorch."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name in sorted(tensors):
        shape, end = list(tensors[name].shape), position + tensors[name].nbytes
        dtype = _WRITTEN[tensors[name].dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with files.atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            little_endian = tensors[name].dtype.newbyteorder("<")
            f.write(np.ascontiguousarray(tensors[name], little_endian).tobytes())
