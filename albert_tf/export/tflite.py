# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts encoders and classifiers to TensorFlow Lite, and measures the differences.

content = convert(encoder_outputs(model), model.named_weights(), "int8")
numerics(content, encoder_outputs(model), model.config, "int8")["outputs"]["pooled_output"]
interpreter_class()(model_content=content).get_signature_runner()(input_word_ids=…, …)
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python.convert_phase import ConverterError

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.encoder import probe_batches, serving_signature
from albert_tf.export.model_card import Kind
from albert_tf.export.saved_model import ReusableSavedModel
from albert_tf.export.serving import input_specs
from albert_tf.io.streams import standard_error_shut
from albert_tf.modeling.encoder import AlbertEncoder

_EXAMPLE = """import numpy as np

try:
    from ai_edge_litert.interpreter import Interpreter  # pip install ai-edge-litert
except ImportError:
    import tensorflow as tf

    Interpreter = tf.lite.Interpreter

run = Interpreter("{name}/model.tflite").get_signature_runner("serving_default")
ids = np.array([[2, 21, 1854, 9, 3]], np.int32)  # [CLS], pieces, [SEP]
run(input_word_ids=ids, input_mask=np.ones_like(ids), input_type_ids=np.zeros_like(ids))"""
#: Largest difference from the source by quantization, relative to an output's largest value: at
#: least ten times what was measured. The converter silently clips weights too large for float16.
#: "int8" has one scale for each output of a product, and rounds activations for products (dynamic
#: range quantization, which needs no calibration).
TOLERANCES = {"none": 1e-4, "float16": 0.05, "int8": 0.5}
QUANTIZATIONS = tuple(TOLERANCES)

#: Returns outputs by name, from the model's inputs by name and `training`.
Outputs = Callable[[Mapping[str, tf.Tensor], bool], dict[str, tf.Tensor]]


def interpreter_class() -> type:
    """Returns LiteRT's interpreter (package ai-edge-litert) if it is installed, else TensorFlow's.

    TensorFlow 2.20 and newer warn that `tf.lite.Interpreter` will be removed in its favour.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return tf.lite.Interpreter
    return Interpreter


def lite_kind(kind: Kind) -> Kind:
    """Returns the kind of a TensorFlow Lite model, from that of the SavedModel."""
    return Kind(f"{kind.title} for TensorFlow Lite", _EXAMPLE)


def encoder_outputs(model: AlbertEncoder) -> Outputs:
    """Returns a function with an encoder's `pooled_output` [B, H], `sequence_output` [B, S, H]."""

    def encode(inputs: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        outputs = model(inputs, training=training)
        return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    return encode


def convert(function: Outputs, weights: Mapping[str, tf.Variable], quantization: str) -> bytes:
    """Converts a function to a TensorFlow Lite model.

    Its only signature, `serving_default`, takes `input_word_ids`, `input_mask` and
    `input_type_ids`, int32 [B, S] of any B and S, and returns the function's outputs.

    Args:
      function: `encoder_outputs`, or that of a task, of a float32 model.
      weights: the variables that the function reads.
      quantization: one of QUANTIZATIONS.

    Returns:
      The content of the .tflite file; it is deterministic.

    Raises:
      AlbertError: the function needs operations that are not built into TensorFlow Lite, or the
        quantization is unknown.
    """
    if quantization not in QUANTIZATIONS:
        raise AlbertError(
            f"Unknown quantization {quantization!r}; use one of {', '.join(QUANTIZATIONS)}."
        )
    serve = serving_signature(function, input_specs(), served=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [serve], ReusableSavedModel(serve, list(weights.values()))
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantization != "none":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        # The converter logs every operation, and long errors.
        with standard_error_shut():
            return converter.convert()
    except ConverterError as error:
        raise AlbertError(
            f"TensorFlow Lite cannot compute this model with built-in operations: {_cause(error)}."
        ) from error


def _cause(error: ConverterError) -> str:
    """Returns the missing operations, or else the first line of a long message."""
    missing = re.findall(r"(?:TF Select|Custom) ops: ([^\n]+)", str(error))
    if missing:
        return "it lacks " + ", ".join(dict.fromkeys(missing))
    return str(error).strip().split("\n")[0].rstrip(".")


def operations(content: bytes) -> dict[str, int]:
    """Counts the built-in operations of a TensorFlow Lite model, by name.

    Raises:
      AlbertError: it uses other operations, which not every interpreter has.
    """
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    model = schema.Model.GetRootAs(content)
    kinds = []
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        if code.CustomCode():
            raise AlbertError(
                f"The TensorFlow Lite model uses {code.CustomCode().decode()}, which is not a "
                "built-in operation."
            )
        # The older field cannot hold numbers above 127.
        kinds.append(names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())])
    count: collections.Counter[str] = collections.Counter()
    for index in range(model.SubgraphsLength()):
        graph = model.Subgraphs(index)
        count.update(
            kinds[graph.Operators(i).OpcodeIndex()] for i in range(graph.OperatorsLength())
        )
    return dict(sorted(count.items()))


def numerics(
    content: bytes, function: Outputs, config: AlbertConfig, quantization: str
) -> dict[str, Any]:
    """Compares a TensorFlow Lite model with its source on `encoder.probe_batches`.

    Args:
      content: the result of `convert`.
      function, quantization: as for `convert`.
      config: of the model.

    Returns:
      A report as JSON values: `quantization`, `bytes`, `operations` (see `operations`), `inputs`
      (the shapes of the probes) and `outputs`: for every output the largest `absolute` difference,
      the same `relative` to the largest value, for vectors the smallest `cosine` similarity, and
      for probabilities `same_label`, the share of rows with the same best label.

    Raises:
      AlbertError: there are operations that are not built in, or an output differs by more than
        TOLERANCES or is not finite.
    """
    used = operations(content)
    batches = probe_batches(config)
    with standard_error_shut():  # The interpreter announces its delegate for the CPU.
        run = interpreter_class()(model_content=content).get_signature_runner()
        results = [run(**batch) for batch in batches]
    expected = [
        function({name: tf.constant(value) for name, value in batch.items()}, False)
        for batch in batches
    ]
    outputs = {}
    for name in expected[0]:
        ours, theirs = [r[name] for r in results], [e[name].numpy() for e in expected]
        outputs[name] = figures = _difference(name, ours, theirs)
        # Not `>`: comparisons with NaN are False.
        if not figures["relative"] <= TOLERANCES[quantization]:
            raise AlbertError(
                f"The TensorFlow Lite model with quantization {quantization!r} is not accurate: "
                f"its {name} differs from the source's by {figures['absolute']:.2g}, "
                f"{figures['relative']:.2g} of the largest value; use another quantization, or "
                "export a SavedModel."
            )
    return {
        "quantization": quantization,
        "bytes": len(content),
        "operations": used,
        "inputs": [list(batch["input_mask"].shape) for batch in batches],
        "outputs": outputs,
    }


def summary(report: Mapping[str, Any]) -> str:
    """Formats the report of `numerics` in two lines."""
    differences = ", ".join(
        f"{name} {figures['relative']:.1e}" for name, figures in report["outputs"].items()
    )
    return (
        f"{report['bytes'] / 1e6:.1f} MB, only built-in operations, quantization "
        f"{report['quantization']}.\nLargest differences from the source, relative to the largest "
        f"value: {differences}."
    )


def _difference(name: str, ours: list[np.ndarray], theirs: list[np.ndarray]) -> dict[str, float]:
    """Returns the figures of one output; see `numerics`."""
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
