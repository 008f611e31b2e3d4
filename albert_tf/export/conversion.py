# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts a pretrained model to another format, and reads the result back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Callable

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.encoder import write_hub_encoder
from albert_tf.export.weight_formats import (
    FLOAT16,
    FLOAT32,
    HF,
    TF1,
    TF2,
    TFHUB,
    check_weights_dtype,
)
from albert_tf.huggingface.weights import write_hugging_face
from albert_tf.io import folders
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf1, write_tf2
from albert_tf.weights.load import LoadReport, open_source
from albert_tf.weights.pretrained_model import load_pretrained

Writer = Callable[[str, AlbertConfig, "Tokenizer | None", Mapping[str, np.ndarray]], None]

#: The function that writes each format.
WRITERS: dict[str, Writer] = {
    TF2: write_tf2,
    TF1: write_tf1,
    HF: write_hugging_face,
    TFHUB: write_hub_encoder,
}


@dataclasses.dataclass(frozen=True)
class ConversionOptions:
    """Options of `convert`.

    Attributes:
      allow_partial: see load_pretrained; only the weights of the source are written.
      weights_dtype: "float32", or for "hf" also "float16", to which all weights are rounded.
    """

    allow_partial: bool = False
    weights_dtype: str = FLOAT32


def convert(
    from_path: str,
    to: str,
    output_dir: str,
    options: ConversionOptions | None = None,
    overwrite: bool = False,
) -> LoadReport:
    """Writes the model at `from_path` to a new folder, and compares the result bit by bit.

    Args:
      from_path: see albert_tf.weights.load.open_source.
      to: one of WRITERS.
      output_dir: a folder that does not exist yet, or is empty; it appears only when complete.
      options: None for the default ones.
      overwrite: replace a model of the same format in `output_dir`; see folders.new_folder.

    Raises:
      AlbertError: the source cannot be loaded, the format cannot represent the model, a weight is
        too large for float16, or the folder is not empty.
    """
    options = options or ConversionOptions()
    check_weights_dtype(to, options.weights_dtype)
    with folders.new_folder(output_dir, overwrite, from_path) as folder:
        model = load_pretrained(from_path, options.allow_partial)
        if model.tokenizer is None:
            print(
                f"There is no vocabulary beside {from_path}, so the result has none: put it "
                "there and convert again, or give a vocabulary wherever you use the result."
            )
        variables = model.named_weights()
        weights = {name: variables[name].numpy() for name in model.load_report.matched}
        if options.weights_dtype == FLOAT16:
            weights = {name: _half(name, value) for name, value in weights.items()}
        WRITERS[to](folder, model.config, model.tokenizer, weights)
        _compare(folder, weights)
    return model.load_report


def _half(name: str, values: np.ndarray) -> np.ndarray:
    """Rounds float32 values to float16; raises AlbertError if one is too large."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float16)
    lost = values[np.isfinite(values) & ~np.isfinite(rounded)]
    if lost.size:
        raise AlbertError(
            f"{name} holds {lost[np.argmax(np.abs(lost))]:g}, which float16 cannot (its largest "
            f"number is {np.finfo(np.float16).max:g}); write it with `weights_dtype`=float32."
        )
    return rounded


def _compare(folder: str, weights: Mapping[str, np.ndarray]) -> None:
    """Raises AlbertError unless the weights in a folder are these."""
    written = open_source(folder)
    wrong = [
        name
        for name in sorted({*written.shapes, *weights})
        if name not in written.shapes
        or name not in weights
        or written.read(name).tobytes() != weights[name].astype(np.float32).tobytes()
    ]
    if wrong:
        raise AlbertError(
            f"The result in {os.path.dirname(folder)} differs from the source in "
            f"{', '.join(wrong)}; the disk may be full or damaged."
        )
