# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The answers of transformers and ONNX Runtime, for benchmarks.inference. See answers.py.

The way is "eager" or "compile", of transformers for PyTorch with the setup's "dtype"; or "onnx" for
transformers' model or "onnx_export" for this project's (a folder or a file), in ONNX Runtime.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import protocol

#: Inputs of ONNX models, and their type.
_ONNX_INPUTS = {
    "onnx": (("input_ids", "attention_mask", "token_type_ids"), np.int64),
    "onnx_export": (("input_word_ids", "input_mask", "input_type_ids"), np.int32),
}


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Returns a function that answers as often as it is asked to."""
    ids = np.load(setup["inputs"])["ids"].astype(np.int64)
    arguments = (ids, np.ones_like(ids), np.zeros_like(ids))
    answer = (_onnx if setup["way"] in _ONNX_INPUTS else _torch)(setup, arguments)
    np.save(setup["outputs"], answer())
    return protocol.repeated(answer)


def _onnx(setup: dict[str, Any], arguments: tuple[np.ndarray, ...]) -> Callable[[], np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup["threads"]
    path = setup["model"]
    path = os.path.join(path, "model.onnx") if os.path.isdir(path) else path
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names, dtype = _ONNX_INPUTS[setup["way"]]
    # torch's export leaves out an input that the model does not read.
    taken = {value.name for value in session.get_inputs()}
    feed = {n: value.astype(dtype) for n, value in zip(names, arguments) if n in taken}
    return lambda: session.run([setup["output"]], feed)[0]


def _torch(setup: dict[str, Any], arguments: tuple[np.ndarray, ...]) -> Callable[[], np.ndarray]:
    import torch

    from benchmarks.inference.torch_model import INPUTS, load_model

    torch.set_num_threads(setup["threads"])
    model = load_model(setup["model"], getattr(torch, setup["dtype"]))
    function = torch.compile(model) if setup["way"] == "compile" else model

    @torch.inference_mode()
    def answer() -> np.ndarray:
        inputs = {name: torch.from_numpy(value) for name, value in zip(INPUTS, arguments)}
        return function(**inputs).pooler_output.float().numpy()

    return answer


if __name__ == "__main__":
    protocol.serve(build, ("torch", "transformers", "onnxruntime"))
