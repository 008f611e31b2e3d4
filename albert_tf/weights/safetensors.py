# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes safetensors files with Hugging Face's library, on any file system."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files
from albert_tf.io.json_values import shown

#: Old files hold a table of positions in int64 beside the weights.
_DTYPES = ("F32", "F16", "BF16", "I64")


class SafetensorsFile:
    """A safetensors file; its tensors are read one by one.

    Attributes:
      shapes: by name.

    Raises:
      AlbertError: the file is missing, damaged or holds tensors of other types.
    """

    def __init__(self, path: str) -> None:
        files.check_file(path, "weights file")
        try:
            with _local_copy(path) as local:
                # The file is mapped into memory, so the copy can be deleted once it is open.
                self._file = safe_open(local, framework="numpy")
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise AlbertError(
                f"{path} is not an intact safetensors file ({first_line(error)}); get it again."
            ) from error
        for name, entry in slices.items():
            if entry.get_dtype() not in _DTYPES:
                raise AlbertError(
                    f"{path}: {shown(name)} has type {entry.get_dtype()}; only "
                    f"{', '.join(_DTYPES)} can be read."
                )
        self.shapes = {name: list(entry.get_shape()) for name, entry in slices.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor; float16 and bfloat16 become float32, which is exact."""
        values = self._file.get_tensor(name)
        return values if values.dtype == np.int64 else values.astype(np.float32, copy=False)


@contextlib.contextmanager
def _local_copy(path: str) -> Iterator[str]:
    """Yields the path itself, or that of a temporary copy if it is on a remote file system."""
    if files.is_local(path):
        yield path
        return
    with files.space_for("temporary files"), tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        tf.io.gfile.copy(path, local)
        yield local


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors of one dtype, sorted by name; the file is either complete or untouched."""
    # The library writes the bytes as they are in memory, transposed or not.
    contiguous = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    # Hugging Face's library for PyTorch writes the same metadata.
    files.write_bytes(path, save(contiguous, metadata={"format": "pt"}))
