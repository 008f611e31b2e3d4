# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite: the encoder and classifiers with built-in operations, and how exact they are.

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
from albert_tf.export.saved_model import Reusable
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
#: float32 throughout; weights in float16; weights in int8, one scale for each output of a product,
#: and activations rounded to int8 while they are multiplied (no data needed for calibration).
QUANTIZATIONS = ("none", "float16", "int8")

#: How far a model may be from its source, as a share of an output's largest value: ten and more
#: times what was measured. The converter clips weights that are too large for float16 silently.
TOLERANCES = {"none": 1e-4, "float16": 0.05, "int8": 0.5}

#: Outputs by name of the model's inputs by name and of `training`.
Outputs = Callable[[Mapping[str, tf.Tensor], bool], dict[str, tf.Tensor]]


def interpreter_class() -> type:
    """The class that runs TensorFlow Lite models: LiteRT's where it is installed, or TensorFlow's.

    LiteRT is the package ai-edge-litert. TensorFlow 2.20 and newer warn that `tf.lite.Interpreter`
    will be removed in its favour.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return tf.lite.Interpreter
    return Interpreter


def lite_kind(kind: Kind) -> Kind:
    """What a TensorFlow Lite model is, by what its SavedModel would be."""
    return Kind(f"{kind.title} for TensorFlow Lite", _EXAMPLE)


def encoder_outputs(model: AlbertEncoder) -> Outputs:
    """The function of an encoder: `pooled_output` [B, H] and `sequence_output` [B, S, H]."""

    def encode(inputs: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        outputs = model(inputs, training=training)
        return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    return encode


def convert(function: Outputs, weights: Mapping[str, tf.Variable], quantization: str) -> bytes:
    """Makes a TensorFlow Lite model.

    Its one signature, `serving_default`, takes `input_word_ids`, `input_mask` and
    `input_type_ids`, int32 [B, S] of any B and S, and gives what the function gives.

    Args:
      function: `encoder_outputs`, or that of a task, for a model in float32.
      weights: the variables that the function reads.
      quantization: of QUANTIZATIONS.

    Returns:
      The content of the .tflite file; the same for the same weights.

    Raises:
      AlbertError: the function needs more than TensorFlow Lite's built-in operations, or there is
        no such quantization.
    """
    if quantization not in QUANTIZATIONS:
        raise AlbertError(
            f"There is no quantization {quantization!r}; take one of {', '.join(QUANTIZATIONS)}."
        )
    serve = serving_signature(function, input_specs())
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [serve], Reusable(serve, list(weights.values()))
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantization != "none":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        # The converter tells of every operation that it sees, and of errors at length.
        with standard_error_shut():
            return converter.convert()
    except ConverterError as error:
        raise AlbertError(
            f"TensorFlow Lite cannot compute this model with built-in operations: {_cause(error)}."
        ) from error


def _cause(error: ConverterError) -> str:
    """The operations that are missing, or else the first line of a long message."""
    missing = re.findall(r"(?:TF Select|Custom) ops: ([^\n]+)", str(error))
    if missing:
        return "it lacks " + ", ".join(dict.fromkeys(missing))
    return str(error).strip().split("\n")[0].rstrip(".")


def operations(content: bytes) -> dict[str, int]:
    """How often a TensorFlow Lite model uses each built-in operation, by its name.

    Raises:
      AlbertError: it uses others, which not every interpreter has.
    """
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    model = schema.Model.GetRootAs(content)
    kinds = []
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        if code.CustomCode():
            raise AlbertError(
                f"The TensorFlow Lite model uses {code.CustomCode().decode()}, which is no "
                "built-in operation."
            )
        # Older readers know the second field alone, in which large numbers have no place.
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
      content: what `convert` returned.
      function: of the source; see `convert`.
      config: of the source.
      quantization: what `convert` was told.

    Returns:
      For JSON: `quantization`, `bytes`, `operations` (see `operations`), `inputs` (the shapes of
      the probes) and `outputs`: for every output the largest `absolute` difference, the same
      `relative` to the largest value, and where an output is vectors the smallest `cosine` between
      two of them; for probabilities also `same_label`, the share of rows with the same best label.

    Raises:
      AlbertError: there are other than built-in operations, or an output is off by more than
        TOLERANCES, or not finite.
    """
    used = operations(content)
    batches = probe_batches(config)
    with standard_error_shut():  # It announces its delegate for the CPU.
        run = interpreter_class()(model_content=content).get_signature_runner()
        found = [run(**batch) for batch in batches]
    expected = [
        function({name: tf.constant(value) for name, value in batch.items()}, False)
        for batch in batches
    ]
    outputs = {
        name: _difference(
            name, [batch[name] for batch in found], [batch[name].numpy() for batch in expected]
        )
        for name in expected[0]
    }
    for name, figures in outputs.items():
        # Not the other way round: comparisons with NaN are False.
        if not figures["relative"] <= TOLERANCES[quantization]:
            raise AlbertError(
                f"The TensorFlow Lite model with quantization {quantization!r} is no good: its "
                f"{name} differs from the source's by {figures['absolute']:.2g}, "
                f"{figures['relative']:.2g} of the largest value; take another quantization, or "
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
    """What `numerics` found, in two lines."""
    differences = ", ".join(
        f"{name} {figures['relative']:.1e}" for name, figures in report["outputs"].items()
    )
    return (
        f"{report['bytes'] / 1e6:.1f} MB, built-in operations alone, quantization "
        f"{report['quantization']}.\nLargest differences from the source, as shares of the largest "
        f"value: {differences}."
    )


def _difference(name: str, found: list[np.ndarray], expected: list[np.ndarray]) -> dict[str, float]:
    """The figures of one output; see `numerics`."""
    flat = [np.concatenate([array.ravel() for array in arrays]) for arrays in (found, expected)]
    absolute, largest = float(np.abs(flat[0] - flat[1]).max()), float(np.abs(flat[1]).max())
    figures = {"absolute": absolute, "relative": absolute / max(largest, 1e-12)}
    if expected[0].ndim == 1:
        return figures
    width = expected[0].shape[-1]
    ours, theirs = (array.astype(np.float64).reshape(-1, width) for array in flat)
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    figures["cosine"] = float(((ours * theirs).sum(axis=1) / norms).min())
    if name == "probabilities":
        figures["same_label"] = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())
    return figures
