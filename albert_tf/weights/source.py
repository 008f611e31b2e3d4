# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Source: weights, configuration and tokenizer of a pretrained model on disk, in any format."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Mapping

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tokenization.tokenizer import Tokenizer, find_vocabulary

#: Parameters that a model may always have, however many weights are stored.
_SMALL_MODEL = 1 << 26


class Source(abc.ABC):
    """Weights by official name, with their configuration and tokenizer, read on demand.

    Attributes:
      location: a checkpoint's name or a folder, for messages.
      shapes: shape by official name; weights without an official name keep their own.
      needs_pooler: false if the model that the weights are of does not use a pooler.
      _path: what the source was opened with, without searching it.
    """

    needs_pooler = True

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
        if config and (wanted := config.count_parameters()["encoder"]) > _SMALL_MODEL:
            stored = sum(map(math.prod, self.shapes.values()))
            if wanted > 4 * stored:
                raise AlbertError(
                    f"The configuration of {self._path} describes a model of {wanted:.1e} "
                    f"parameters, but its weights have {stored:,}; get both again."
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

    def _find_vocabulary(self) -> str | None:
        """Returns the path for Tokenizer.from_file, None if there is no vocabulary."""
        return find_vocabulary(self._path)


class ArraysSource(Source):
    """Weights that are all read at the first use.

    Attributes:
      _weights: them by official name.
    """

    @property
    def shapes(self) -> Mapping[str, list[int]]:
        """Returns the shapes by official name."""
        return {name: list(values.shape) for name, values in self._weights.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns the weight of that name."""
        return self._weights[name]
