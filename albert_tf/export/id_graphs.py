# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that take token ids, as files of formats that have no operations for texts.

The formats are in albert_tf.export.tflite and albert_tf.export.onnx_graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.modeling.encoder import AlbertEncoder

#: Returns outputs by name, from the model's inputs by name and `training`.
Outputs = Callable[[Mapping[str, tf.Tensor], bool], dict[str, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class IdFormat:
    """A format.

    Attributes:
      title: its name.
      file: the name of the model's file.
      example: Python code for the model card, with {name} for the name of the export.
      convert: makes the content of the file from a function and the variables that it reads.
      numerics: compares the content with the function, given the model's configuration; returns a
        report as JSON values, and raises AlbertError for large differences.
      summary: formats the report in two lines.
    """

    title: str
    file: str
    example: str
    convert: Callable[[Outputs, Mapping[str, tf.Variable]], bytes]
    numerics: Callable[[bytes, Outputs, AlbertConfig], dict[str, Any]]
    summary: Callable[[Mapping[str, Any]], str]


def encoder_outputs(model: AlbertEncoder) -> Outputs:
    """Returns a function with an encoder's `pooled_output` [B, H], `sequence_output` [B, S, H]."""

    def encode(inputs: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        outputs = model(inputs, training=training)
        return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    return encode


def compare(
    results: Sequence[Mapping[str, np.ndarray]],
    function: Outputs,
    batches: Sequence[Mapping[str, np.ndarray]],
    tolerance: float,
    what: str,
) -> dict[str, dict[str, float]]:
    """Compares a converted model's outputs with those of its source.

    Args:
      results: the model's outputs for each batch.
      function: the source.
      batches: the inputs.
      tolerance: the largest difference, relative to an output's largest value.
      what: names the model in the error.

    Returns:
      For every output the largest `absolute` difference, the same `relative` to the largest value,
      for vectors the smallest `cosine` similarity, and for probabilities `same_label`, the share of
      rows with the same best label.

    Raises:
      AlbertError: an output differs by more than the tolerance or is not finite.
    """
    expected = [
        function({name: tf.constant(value) for name, value in batch.items()}, False)
        for batch in batches
    ]
    outputs = {}
    for name in expected[0]:
        ours, theirs = [r[name] for r in results], [e[name].numpy() for e in expected]
        outputs[name] = figures = _difference(name, ours, theirs)
        # Not `>`: comparisons with NaN are False.
        if not figures["relative"] <= tolerance:
            raise AlbertError(
                f"{what} is not accurate: its {name} differs from the source's by "
                f"{figures['absolute']:.2g}, {figures['relative']:.2g} of the largest value; use "
                "a SavedModel instead or, for TensorFlow Lite, another quantization."
            )
    return outputs


def difference_line(report: Mapping[str, Any]) -> str:
    """Formats the differences in a report of `IdFormat.numerics` in a line."""
    differences = ", ".join(
        f"{name} {figures['relative']:.1e}" for name, figures in report["outputs"].items()
    )
    return f"Largest differences from the source, relative to the largest value: {differences}."


def _difference(name: str, ours: list[np.ndarray], theirs: list[np.ndarray]) -> dict[str, float]:
    """Returns the figures of one output; see `compare`."""
    shape, width = theirs[0].shape, theirs[0].shape[-1]
    ours, theirs = (np.concatenate([a.ravel() for a in arrays]) for arrays in (ours, theirs))
    absolute, largest = float(np.abs(ours - theirs).max()), float(np.abs(theirs).max())
    figures = {"absolute": absolute, "relative": absolute / max(largest, 1e-12)}
    if len(shape) == 1:
        return figures
    ours, theirs = (array.astype(np.float64).reshape(-1, width) for array in (ours, theirs))
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    figures["cosine"] = float(((ours * theirs).sum(axis=1) / norms).min())
    if name == "probabilities":
        figures["same_label"] = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())
    return figures
