# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders and classifiers that take token ids, for TensorFlow Lite and as ONNX.

Neither format has operations for texts.
"""

from __future__ import annotations

import collections
import logging
import os
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.export.hub import ENCODER_TITLE, input_specs, probe_batches
from albert_tf.export.probe_process import arrays
from albert_tf.export.saved_model import INT8, Export, ReusableSavedModel
from albert_tf.export.self_check import Probe
from albert_tf.huggingface.tokenizer import tokenizer_files
from albert_tf.io.text_tables import label_text
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import FLOAT32

TFLITE, ONNX = "tflite", "onnx"
_TITLES = {TFLITE: "TensorFlow Lite", ONNX: "ONNX"}
_IDS = """import numpy as np
{imports}
ids = np.array([[2, 21, 1854, 9, 3]], np.int32)  # [CLS], pieces, [SEP]
inputs = dict(input_word_ids=ids, input_mask=np.ones_like(ids), input_type_ids=np.zeros_like(ids))
"""
#: Python code for the model card, with {name} for the name of the export.
_EXAMPLES = {
    TFLITE: _IDS.format(
        imports="import tensorflow as tf  # Or Interpreter from ai_edge_litert.interpreter.\n"
    )
    + """interpreter = tf.lite.Interpreter("{name}/model.tflite")
outputs = interpreter.get_signature_runner()(**inputs)""",
    ONNX: _IDS.format(imports="import onnxruntime\n")
    + """session = onnxruntime.InferenceSession("{name}/model.onnx")
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(None, inputs)))""",
}
#: The version of ONNX's operations; ONNX Runtime has known it since 1.14 (February 2023).
_OPSET = 17


def encoder_ids_export(
    model: AlbertEncoder, tokenizer: Tokenizer, file_format: str = TFLITE, precision: str = FLOAT32
) -> Export:
    """Returns the export of `pooled_output` [B, H] and `sequence_output` [B, S, H]."""

    def encode(inputs) -> dict[str, tf.Tensor]:
        outputs = model(inputs)
        return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    return ids_export(ENCODER_TITLE, encode, model, tokenizer, (), file_format, precision)


def ids_export(
    title: str,
    function: Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    model: AlbertModel,
    tokenizer: Tokenizer,
    labels: Sequence[object],
    file_format: str,
    precision: str,
) -> Export:
    """Returns the export of a function of token ids, with Hugging Face's tokenizer and the labels.

    It takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S].

    Args:
      title: what it is, such as "ALBERT encoder".
      function: from the inputs of the float32 model to outputs.
      model: has the variables that it reads.
      tokenizer: of the model.
      labels: what the entries of an output stand for.
      file_format: TFLITE, with built-in operations only and one signature, `serving_default`; or
        ONNX. The same weights make the same bytes for TensorFlow Lite.
      precision: FLOAT32; or INT8: weights of products with one scale for each output, and
        activations that are rounded for these products (dynamic range quantization). Weights that
        layers share are in the file once.

    Raises:
      AlbertError: tf2onnx or ONNX Runtime is not installed.
    """

    @tf.function(autograph=False)
    def call(**inputs) -> Mapping[str, tf.Tensor]:
        return function(inputs)

    probes = [Probe(batch, arrays(function(batch))) for batch in probe_batches(model.config)]
    serve = call.get_concrete_function(**input_specs())
    if file_format == ONNX:
        content = _to_onnx(serve, precision, probes[-1].inputs)
    else:
        content = _to_lite(serve, model, precision)
    lines = "".join(f"{label_text(label)}\n" for label in labels)
    return Export(
        f"{title} for {_TITLES[file_format]}",
        _EXAMPLES[file_format],
        None,
        {},
        probes,
        files={
            f"model.{file_format}": content,
            **tokenizer_files(tokenizer, model.config.max_position_embeddings),
            **({"labels.txt": lines.encode()} if labels else {}),
        },
        precision=precision,
    )


def _to_lite(
    serve: tf.types.experimental.ConcreteFunction, model: AlbertModel, precision: str
) -> bytes:
    weights = list(model.named_weights().values())
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [serve], ReusableSavedModel(serve, weights)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if precision == INT8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _to_onnx(serve: Any, precision: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    try:
        import onnxruntime  # noqa: F401  The check needs it.
        import tf2onnx
    except ModuleNotFoundError as error:
        raise AlbertError(
            f"`format`=onnx needs {error.name}; install albert_tf with its extra: "
            "pip install '.[onnx]'."
        ) from error

    # The converter wants something that it can trace.
    traced = types.SimpleNamespace(get_concrete_function=lambda *_: serve)
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    specs = list(input_specs().values())
    model, _ = tf2onnx.convert.from_function(traced, specs, opset=_OPSET)
    # The converter numbers the axes of unknown size.
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in zip(value.type.tensor_type.shape.dim, ("batch", "length")):
            if not axis.HasField("dim_value"):
                axis.dim_param = name
    if precision == INT8:
        model = _quantized(model, inputs)
    return model.SerializeToString(deterministic=True)


def _quantized(model: Any, inputs: Mapping[str, np.ndarray]) -> Any:
    """Returns an ONNX model whose products with weights, and whose word table, are of integers."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    _scale_columns(model, inputs)
    # The converter has done what ONNX Runtime's preprocessing does, without which it warns.
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        quantize_dynamic(
            model, path, ["MatMul", "Gather"], per_channel=True, weight_type=QuantType.QInt8
        )
        return onnx.load(path)


def _scale_columns(model: Any, inputs: Mapping[str, np.ndarray]) -> None:
    """Scales the inputs of wide products, such as the first of a feed-forward network, by column.

    In trained models a few columns are ten times as large as the others, and one scale rounds all
    of them. Each column is divided by a power of its size for `inputs`; the row of the weights is
    multiplied by it, so that the float32 outputs stay the same.

    Source: Xiao et al., 2023, SmoothQuant, with α = 0.7, the best of 0.3, 0.5, 0.7 and 0.9.
    """
    import onnx
    import onnxruntime

    graph = model.graph
    weights = {w.name: w for w in graph.initializer if len(w.dims) == 2 and w.dims[0] < w.dims[1]}
    products = [n for n in graph.node if n.op_type == "MatMul" and n.input[1] in weights]
    measured = onnx.ModelProto.FromString(model.SerializeToString())
    reads = [product.input[0] for product in products]
    measured.graph.output.extend(onnx.ValueInfoProto(name=name) for name in {*reads})
    session = onnxruntime.InferenceSession(measured.SerializeToString())
    sizes: dict[str, list[np.ndarray]] = collections.defaultdict(list)
    for product, values in zip(products, session.run(reads, dict(inputs))):
        sizes[product.input[1]].append(np.abs(values).reshape(-1, values.shape[-1]).max(0))
    for name, measures in sizes.items():
        kernel = onnx.numpy_helper.to_array(weights[name])
        # A column, or a row of the weights, may be zero.
        size, largest = np.maximum((np.max(measures, 0), np.abs(kernel).max(1)), 1e-5)
        scale = size**0.7 / largest**0.3
        weights[name].CopyFrom(onnx.numpy_helper.from_array(kernel * scale[:, None], name))
        graph.initializer.append(onnx.numpy_helper.from_array(1 / scale, f"{name}/scale"))
    for product in products:
        read, name = product.input
        product.input[0] = f"{product.name}/scaled"
        scaled = onnx.helper.make_node("Mul", [read, f"{name}/scale"], [product.input[0]])
        graph.node.insert([*graph.node].index(product), scaled)
