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
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python.convert_phase import ConverterError

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.encoder import probe_batches, serving_signature
from albert_tf.export.id_graphs import IdFormat, Outputs, compare, difference_line
from albert_tf.export.saved_model import ReusableSavedModel
from albert_tf.export.serving import input_specs

#: Python code for the model card.
EXAMPLE = """import numpy as np

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
    """Returns TensorFlow Lite as a format, with weights of one of QUANTIZATIONS."""
    return IdFormat(
        "TensorFlow Lite",
        "model.tflite",
        EXAMPLE,
        lambda function, weights: convert(function, weights, quantization),
        lambda content, function, config: numerics(content, function, config, quantization),
        summary,
    )


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
      (the shapes of the probes) and `outputs` (see `id_graphs.compare`).

    Raises:
      AlbertError: there are operations that are not built in, or an output differs by more than
        TOLERANCES or is not finite.
    """
    used = operations(content)
    batches = probe_batches(config)
    run = interpreter_class()(model_content=content).get_signature_runner()
    results = [run(**batch) for batch in batches]
    outputs = compare(
        results,
        function,
        batches,
        TOLERANCES[quantization],
        f"The TensorFlow Lite model with quantization {quantization!r}",
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
    return (
        f"{report['bytes'] / 1e6:.1f} MB, only built-in operations, quantization "
        f"{report['quantization']}.\n{difference_line(report)}"
    )
