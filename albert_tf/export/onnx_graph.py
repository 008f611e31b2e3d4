# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts encoders and classifiers to ONNX with tf2onnx, and checks them with ONNX Runtime."""

from __future__ import annotations

import collections
import importlib.util
import logging
import types
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.encoder import probe_batches, serving_signature
from albert_tf.export.id_graphs import IdFormat, Outputs, compare, difference_line
from albert_tf.export.self_check import TOLERANCE
from albert_tf.export.serving import input_specs

#: Python code for the model card.
EXAMPLE = """import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{name}/model.onnx")
ids = np.array([[2, 21, 1854, 9, 3]], np.int32)  # [CLS], pieces, [SEP]
inputs = dict(
    input_word_ids=ids, input_mask=np.ones_like(ids), input_type_ids=np.zeros_like(ids)
)
outputs = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))"""
_PACKAGES = ("tf2onnx", "onnxruntime")
#: The version of ONNX's operations; ONNX Runtime has known it since 1.14 (February 2023).
_OPSET = 17


def onnx_format() -> IdFormat:
    """Returns ONNX as a format.

    Raises:
      AlbertError: tf2onnx or ONNX Runtime is not installed.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise AlbertError(
            f"`format`=onnx needs {' and '.join(missing)}; install albert_tf with its extra: "
            "pip install '.[onnx]'."
        )
    return IdFormat("ONNX", "model.onnx", EXAMPLE, convert, numerics, summary)


def convert(function: Outputs, weights: Mapping[str, tf.Variable]) -> bytes:
    """Converts a function to an ONNX model.

    It takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [batch, length] of any size,
    and returns the function's outputs.

    Args:
      function: `encoder_outputs`, or that of a task, of a float32 model.
      weights: the variables that the function reads; tf2onnx finds them in the graph.

    Returns:
      The content of the .onnx file.
    """
    import tf2onnx

    del weights
    specs = input_specs()
    serve = serving_signature(function, specs, served=False)
    # The converter wants something that it can trace.
    traced = types.SimpleNamespace(get_concrete_function=lambda *_: serve)
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    model, _ = tf2onnx.convert.from_function(traced, list(specs.values()), opset=_OPSET)
    # The converter numbers the axes of unknown size.
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in zip(value.type.tensor_type.shape.dim, ("batch", "length")):
            if not axis.HasField("dim_value"):
                axis.dim_param = name
    return model.SerializeToString(deterministic=True)


def numerics(content: bytes, function: Outputs, config: AlbertConfig) -> dict[str, Any]:
    """Compares an ONNX model in ONNX Runtime with its source on `encoder.probe_batches`.

    Args:
      content: the result of `convert`.
      function: as for `convert`.
      config: of the model.

    Returns:
      A report as JSON values: `bytes`, `operations` (their number by name), `versions`, `inputs`
      (the shapes of the probes) and `outputs` (see `id_graphs.compare`).

    Raises:
      AlbertError: an output differs by more than TOLERANCE or is not finite.
    """
    import onnx
    import onnxruntime
    import tf2onnx

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    batches = probe_batches(config)
    results = [dict(zip(names, session.run(None, batch))) for batch in batches]
    count = collections.Counter(node.op_type for node in onnx.load_from_string(content).graph.node)
    modules = {"onnx": onnx, "onnxruntime": onnxruntime, "tf2onnx": tf2onnx}
    return {
        "bytes": len(content),
        "opset": _OPSET,
        "operations": dict(sorted(count.items())),
        "versions": {name: module.__version__ for name, module in modules.items()},
        "inputs": [list(batch["input_mask"].shape) for batch in batches],
        "outputs": compare(results, function, batches, TOLERANCE, "The ONNX model"),
    }


def summary(report: Mapping[str, Any]) -> str:
    """Formats the report of `numerics` in two lines."""
    return (
        f"{report['bytes'] / 1e6:.1f} MB, operations of ONNX opset {report['opset']}.\n"
        f"{difference_line(report)}"
    )
