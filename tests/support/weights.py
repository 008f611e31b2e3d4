# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models' weights as arrays, written as checkpoints, and the golden inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.modeling.encoder import AlbertModel
from albert_tf.weights.checkpoint import write_tf2

GOLDEN = Path(__file__).parents[1] / "golden"
_INPUTS = {"input_ids": "word_ids", "input_mask": "mask", "segment_ids": "type_ids"}


def weights_of(model: AlbertModel) -> dict[str, np.ndarray]:
    """Returns a model's weights by official name."""
    return {name: variable.numpy() for name, variable in model.named_weights().items()}


def write_model(folder: Path, model: AlbertModel, write: Callable = write_tf2) -> str:
    """Writes a model without a tokenizer, by default as a checkpoint of ours."""
    write(str(folder), model.config, None, weights_of(model))
    return str(folder)


def golden_outputs(folder: Path) -> tuple[dict[str, tf.Tensor], dict[str, np.ndarray]]:
    """Returns the inputs in a golden folder, under the model's names, and all arrays there."""
    with np.load(folder / "expected.npz") as arrays:
        expected = dict(arrays)
    inputs = {f"input_{new}": tf.constant(expected[old], tf.int32) for old, new in _INPUTS.items()}
    return inputs, expected
