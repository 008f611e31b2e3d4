# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders and classifiers that take token ids, for TensorFlow Lite and as ONNX.

  lite = lite_format("int8")
  content = lite.convert(encoder_outputs(model), model.named_weights())
  check(lite, content, encoder_outputs(model), model.config)["outputs"]["pooled_output"]
  interpreter_class()(model_content=content).get_signature_runner()(input_word_ids=…, …)

Neither format has operations for texts.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import logging
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.hub import probe_batches
from albert_tf.export.saved_model import (
    Outputs,
    ReusableSavedModel,
    input_specs,
    serving_signature,
)
from albert_tf.export.self_check import TOLERANCE
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.kernels.graph_mode import GraphMode

_LITE_EXAMPLE = """import numpy as np

try:
    from ai_edge_litert.interpreter import Interpreter  # pip install ai-edge-litert
except ImportError:
    import tensorflow as tf

    Interpreter = tf.lite.Interpreter

run = Interpreter("{name}/model.tflite").get_signature_runner("serving_default")
ids = np.array([[2, 21, 1854, 9, 3]], np.int32)  # [CLS], pieces, [SEP]
run(input_word_ids=ids, input_mask=np.ones_like(ids), input_type_ids=np.zeros_like(ids))"""
_ONNX_EXAMPLE = """import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{name}/model.onnx")
ids = np.array([[2, 21, 1854, 9, 3]], np.int32)  # [CLS], pieces, [SEP]
inputs = dict(
    input_word_ids=ids, input_mask=np.ones_like(ids), input_type_ids=np.zeros_like(ids)
)
outputs = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))"""
#: Largest difference from the source by quantization, relative to an output's largest value: at
#: least ten times what was measured. The converter silently clips weights too large for float16.
#: "int8" has one scale for each output of a product, and rounds activations for products (dynamic
#: range quantization, which needs no calibration).
QUANTIZATIONS = {"none": 1e-4, "float16": 0.05, "int8": 0.5}
#: The version of ONNX's operations; ONNX Runtime has known it since 1.14 (February 2023).
_OPSET = 17
_Batches = Sequence[Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class IdFormat:
    """A format of models that take `input_word_ids`, `input_mask`, `input_type_ids`, int32 [B, S].

    Attributes:
      title: its name.
      file: the name of the model's file.
      example: Python code for the model card, with {name} for the name of the export.
      tolerance: the largest difference from the source, relative to an output's largest value.
      convert: makes the content of the file from a function of a float32 model, such as
        `encoder_outputs`, and the variables that it reads.
      run: computes a file's outputs for batches.
    """

    title: str
    file: str
    example: str
    tolerance: float
    convert: Callable[[Outputs, Mapping[str, tf.Variable]], bytes]
    run: Callable[[bytes, _Batches], list[Mapping[str, np.ndarray]]]


def encoder_outputs(model: AlbertEncoder) -> Outputs:
    """Returns a function with an encoder's `pooled_output` [B, H], `sequence_output` [B, S, H]."""

    def encode(inputs: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        outputs = model(inputs, training=training)
        return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    return encode


def interpreter_class() -> type:
    """Returns LiteRT's interpreter (package ai-edge-litert) if it is installed, else TensorFlow's.

    TensorFlow 2.20 and newer warn that `tf.lite.Interpreter` will be removed in its favour.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return tf.lite.Interpreter
    return Interpreter


def lite_format(quantization: str) -> IdFormat:
    """Returns TensorFlow Lite, with built-in operations only and weights of one of QUANTIZATIONS.

    The model has one signature, `serving_default`. The same weights make the same bytes.

    Raises:
      AlbertError: the quantization is unknown; `convert`: the function needs other operations.
    """
    if quantization not in QUANTIZATIONS:
        raise AlbertError(
            f"Unknown quantization {quantization!r}; use one of {', '.join(QUANTIZATIONS)}."
        )
    return IdFormat(
        "TensorFlow Lite" if quantization == "none" else f"TensorFlow Lite ({quantization})",
        "model.tflite",
        _LITE_EXAMPLE,
        QUANTIZATIONS[quantization],
        functools.partial(_to_lite, quantization),
        _run_lite,
    )


def _to_lite(quantization: str, function: Outputs, weights: Mapping[str, tf.Variable]) -> bytes:
    serve = serving_signature(function, input_specs(), GraphMode.PLAIN)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [serve], ReusableSavedModel(serve, list(weights.values()))
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantization != "none":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        return converter.convert()
    except ConverterError as error:
        missing = re.findall(r"(?:TF Select|Custom) ops: ([^\n]+)", str(error))
        cause = str(error).strip().split("\n")[0].rstrip(".")
        if missing:
            cause = "it lacks " + ", ".join(dict.fromkeys(missing))
        raise AlbertError(
            f"TensorFlow Lite cannot compute this model with built-in operations: {cause}."
        ) from error


def _run_lite(content: bytes, batches: _Batches) -> list[Mapping[str, np.ndarray]]:
    run = interpreter_class()(model_content=content).get_signature_runner()
    return [run(**batch) for batch in batches]


def onnx_format() -> IdFormat:
    """Returns ONNX; raises AlbertError if tf2onnx or ONNX Runtime is not installed."""
    packages = ("tf2onnx", "onnxruntime")
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise AlbertError(
            f"`format`=onnx needs {' and '.join(missing)}; install albert_tf with its extra: "
            "pip install '.[onnx]'."
        )
    return IdFormat("ONNX", "model.onnx", _ONNX_EXAMPLE, TOLERANCE, _to_onnx, _run_onnx)


def _to_onnx(function: Outputs, weights: Mapping[str, tf.Variable]) -> bytes:
    import tf2onnx

    del weights  # The converter finds them in the graph.
    specs = input_specs()
    serve = serving_signature(function, specs, GraphMode.PLAIN)
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


def _run_onnx(content: bytes, batches: _Batches) -> list[Mapping[str, np.ndarray]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(None, batch))) for batch in batches]


def check(
    id_format: IdFormat, content: bytes, function: Outputs, config: AlbertConfig
) -> dict[str, Any]:
    """Compares the result of `convert` with its source, `function`, on `probe_batches`.

    Returns:
      A report as JSON values: `bytes`, `inputs` (the shapes of the probes) and for each of the
      `outputs` the largest `absolute` difference, the same `relative` to the largest value, and of
      vectors the smallest `cosine` similarity.

    Raises:
      AlbertError: an output differs by more than the tolerance or is not finite.
    """
    batches = probe_batches(config)
    results = id_format.run(content, batches)
    expected = [
        function({name: tf.constant(value) for name, value in batch.items()}, False)
        for batch in batches
    ]
    outputs = {}
    for name in expected[0]:
        pairs = [(r[name], e[name].numpy()) for r, e in zip(results, expected)]
        # NumPy's, which keep NaN.
        absolute = float(np.max([np.abs(found - wanted).max() for found, wanted in pairs]))
        largest = float(np.max([np.abs(wanted).max() for _, wanted in pairs]))
        outputs[name] = figures = {"absolute": absolute, "relative": absolute / max(largest, 1e-12)}
        if pairs[0][1].ndim > 1:
            figures["cosine"] = min(_cosine(*pair) for pair in pairs)
        # Not `>`, which is False for NaN.
        if not figures["relative"] <= id_format.tolerance:
            raise AlbertError(
                f"The {id_format.title} model is not accurate: its {name} differs from the "
                f"source's by {absolute:.2g}, {figures['relative']:.2g} of the largest value; use "
                "a SavedModel instead or, for TensorFlow Lite, another quantization."
            )
    shapes = [list(batch["input_mask"].shape) for batch in batches]
    return {"bytes": len(content), "inputs": shapes, "outputs": outputs}


def _cosine(found: np.ndarray, expected: np.ndarray) -> float:
    """Returns the smallest cosine similarity of vectors [..., width]."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(expected, axis=-1)
    return float(((found * expected).sum(axis=-1) / norms).min())


def summary(report: Mapping[str, Any]) -> str:
    """Formats the report of `check` in a sentence."""
    differences = ", ".join(
        f"{name} {figures['relative']:.1e}" for name, figures in report["outputs"].items()
    )
    return (
        f"{report['bytes'] / 1e6:.1f} MB; largest differences from the source, relative to the "
        f"largest value: {differences}."
    )
