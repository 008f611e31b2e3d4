# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts a pretrained model to another format, and reads the result back.

Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import folders
from albert_tf.io.log import log

if TYPE_CHECKING:
    from albert_tf.weights.load import LoadReport

FORMATS = ("tf2", "tf1", "hf")
WEIGHTS_DTYPES = FLOAT32, FLOAT16 = ("float32", "float16")


def writer(to: str) -> Callable[..., None]:
    """Returns the function that writes one of FORMATS.

    It takes a folder, the AlbertConfig, the Tokenizer or None, and the weights by official name.
    """
    from albert_tf.huggingface.weights import write_hugging_face
    from albert_tf.weights.checkpoint import write_tf1, write_tf2

    return dict(zip(FORMATS, (write_tf2, write_tf1, write_hugging_face)))[to]


def convert(
    from_path: str,
    to: str,
    output_dir: str,
    allow_partial: bool = False,
    weights_dtype: str = FLOAT32,
    overwrite: bool = False,
) -> LoadReport:
    """Writes the model at `from_path` to a new folder, and compares the result bit by bit.

    Args:
      from_path: see albert_tf.weights.load.open_source.
      to: one of FORMATS.
      output_dir: a folder that does not exist yet, or is empty; it appears only when complete.
      allow_partial: see load_pretrained; only the weights of the source are written.
      weights_dtype: "float32", or for "hf" also "float16", to which all weights are rounded.
      overwrite: replace a model of the same format in `output_dir`; see folders.new_folder.

    Raises:
      AlbertError: the source cannot be loaded, the format cannot represent the model, a weight is
        too large for float16, or the folder is not empty.
    """
    if weights_dtype != FLOAT32 and to != "hf":
        raise AlbertError(f"`weights_dtype`={weights_dtype} is for `to`=hf; {to} has float32 only.")
    from albert_tf.weights.pretrained_model import load_pretrained

    with folders.new_folder(output_dir, overwrite, from_path) as folder:
        model = load_pretrained(from_path, allow_partial)
        if model.tokenizer is None:
            log.info(
                f"There is no vocabulary beside {from_path}, so the result has none: put it "
                "there and convert again, or give a vocabulary wherever you use the result."
            )
        variables = model.named_weights()
        weights = {name: variables[name].numpy() for name in model.load_report.matched}
        if weights_dtype == FLOAT16:
            weights = {name: _half(name, value) for name, value in weights.items()}
        writer(to)(folder, model.config, model.tokenizer, weights)
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
    from albert_tf.weights.load import open_source

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
