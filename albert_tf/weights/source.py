# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Source: weights, configuration and tokenizer of a pretrained model on disk, in any format."""

from __future__ import annotations

import abc
import contextlib
import os
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.tokenization.tokenizer import Tokenizer, find_vocabulary
from albert_tf.weights.run_folder import BEST, CHECKPOINTS

#: Parameters that a model may always have, whatever the size of its weights' files.
_SMALL_MODEL = 1 << 26
#: Where weights are in a folder: in itself, as in an output directory, or as in a SavedModel.
_WEIGHT_FOLDERS = ("", BEST, CHECKPOINTS, "variables")
#: Part of the names of files with weights: TensorFlow's, those in safetensors and PyTorch's format.
_WEIGHTS = re.compile(r"\.data-|\.(safetensors|bin)$")


class Source(abc.ABC):
    """Weights by official name, with their configuration and tokenizer, read on demand.

    Attributes:
      location: a checkpoint's name or a folder, for messages.
      shapes: shape by official name; weights without an official name keep their own.
      state: the source's names of other contents: optimizer slots, step, copies of tied weights.
      _path: what the source was opened with, without searching it.
    """

    shapes: Mapping[str, list[int]]
    state: Sequence[str]

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")

    @property
    def location(self) -> str:
        """Where the weights are."""
        return self._path

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Returns the weight with that name in `shapes`, in its official orientation."""

    def config(self) -> AlbertConfig | None:
        """Returns the configuration beside the weights, None if there is none.

        Raises:
          AlbertError: it is malformed, or describes a much larger model than the weights, so that
            building the model could take all memory.
        """
        config = self._read_config()
        if config:
            wanted, stored = config.count_parameters()["encoder"], self._stored_bytes()
            if wanted > max(_SMALL_MODEL, 4 * stored):
                raise AlbertError(
                    f"The configuration of {self._path} describes a model of {wanted:.1e} "
                    f"parameters, but its weights have {stored:,} bytes; get both again."
                )
        return config

    def tokenizer(self, lower_case: bool | None = None) -> Tokenizer | None:
        """Returns the tokenizer beside the weights, None if there is none.

        `lower_case` is that of Tokenizer.from_file; None for the source's own setting.
        """
        path = self._find_vocabulary()
        return Tokenizer.from_file(path, lower_case) if path else None

    @property
    def _folder(self) -> str:
        """The folder at the path, or that of the file there."""
        return self._path if files.isdir(self._path) else os.path.dirname(self._path) or os.curdir

    @abc.abstractmethod
    def _read_config(self) -> AlbertConfig | None:
        """Reads the configuration beside the weights, None if there is none."""

    def _stored_bytes(self) -> int:
        """Returns the size of the files where the weights may be."""
        size = 0
        for folder in (os.path.join(self._folder, name) for name in _WEIGHT_FOLDERS):
            for name in filter(_WEIGHTS.search, storage.listdir(folder)):
                with contextlib.suppress(tf.errors.NotFoundError):  # A run deletes old checkpoints.
                    size += storage.size(os.path.join(folder, name))
        return size

    def _find_vocabulary(self) -> str | None:
        """Returns the path for Tokenizer.from_file, None if there is no vocabulary."""
        return find_vocabulary(self._path)
