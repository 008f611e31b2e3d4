# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The answers of transformers and ONNX Runtime, for benchmarks.inference. See answers.py.

The way is "eager" or "compile", of transformers for PyTorch with the setup's "dtype"; or
"onnx_export" or "openvino", ONNX Runtime or OpenVINO with the folder of this project's ONNX model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import protocol

#: Names of the inputs, in one order.
_ONNX_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
_TORCH_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: The same function as gelu_new, in one operation.
_FAST_ACTIVATIONS = {"gelu_new": "gelu_pytorch_tanh"}


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Returns a function that answers as often as it is asked to."""
    ids = np.load(setup["inputs"])["ids"].astype(np.int64)
    arguments = (ids, np.ones_like(ids), np.zeros_like(ids))
    make = {"onnx_export": _onnx, "openvino": _openvino}.get(setup["way"], _torch)
    np.save(setup["outputs"], (answer := make(setup, arguments))())
    return protocol.repeated(answer)


def _onnx(setup: dict[str, Any], arguments: tuple[np.ndarray, ...]) -> Callable[[], np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup["threads"]
    path = os.path.join(setup["model"], "model.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {n: value.astype(np.int32) for n, value in zip(_ONNX_INPUTS, arguments)}
    return lambda: session.run([setup["output"]], feed)[0]


def _openvino(setup: dict[str, Any], arguments: tuple[np.ndarray, ...]) -> Callable[[], np.ndarray]:
    import openvino

    hint = {"float32": "f32", "bfloat16": "bf16"}[setup["dtype"]]
    options = {"INFERENCE_NUM_THREADS": setup["threads"], "INFERENCE_PRECISION_HINT": hint}
    path = os.path.join(setup["model"], "model.onnx")
    model = openvino.Core().compile_model(path, "CPU", options)
    feed = {n: value.astype(np.int32) for n, value in zip(_ONNX_INPUTS, arguments)}
    return lambda: model(feed)[setup["output"]]


def _torch(setup: dict[str, Any], arguments: tuple[np.ndarray, ...]) -> Callable[[], np.ndarray]:
    import torch
    import transformers

    torch.set_num_threads(setup["threads"])
    config = transformers.AlbertConfig.from_pretrained(setup["model"])
    config.hidden_act = _FAST_ACTIVATIONS.get(config.hidden_act, config.hidden_act)
    model = transformers.AlbertModel.from_pretrained(
        setup["model"],
        config=config,
        dtype=getattr(torch, setup["dtype"]),
        attn_implementation="sdpa",
    ).eval()
    function = torch.compile(model) if setup["way"] == "compile" else model

    @torch.inference_mode()
    def answer() -> np.ndarray:
        inputs = {name: torch.from_numpy(value) for name, value in zip(_TORCH_INPUTS, arguments)}
        return function(**inputs).pooler_output.float().numpy()

    return answer


if __name__ == "__main__":
    protocol.serve(build, ("torch", "transformers", "onnxruntime", "openvino"))
