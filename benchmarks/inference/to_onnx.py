# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a Hugging Face folder to ONNX, in float32 and with int8 weights.

  python benchmarks/inference/to_onnx.py HF_FOLDER OUTPUT_FOLDER

Writes `encoder.onnx`, and `encoder_int8.onnx` as ONNX Runtime's dynamic quantization makes it. Runs
in the peers' environment, without this project.
"""

from __future__ import annotations

import os
import sys

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

# This file runs as a program, so that its folder is in the path of modules.
from torch_model import INPUTS, load_model


class Outputs(torch.nn.Module):
    """An encoder that returns its pooled output, and takes its inputs by position."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Returns the pooled output [B, H] from `INPUTS`, int64 [B, S] each."""
        return self.encoder(**dict(zip(INPUTS, inputs))).pooler_output


def main() -> None:
    """Writes both files."""
    source, folder = sys.argv[1:]
    encoder = load_model(source)
    ids = torch.randint(5, encoder.config.vocab_size, (2, 24))
    inputs = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    longest = encoder.config.max_position_embeddings
    shape = {
        0: torch.export.Dim("rows", max=512),
        1: torch.export.Dim("length", min=2, max=longest),
    }
    path = os.path.join(folder, "encoder.onnx")
    torch.onnx.export(
        Outputs(encoder), inputs, path, input_names=list(INPUTS), output_names=["pooled_output"],
        dynamic_shapes=((shape,) * len(INPUTS),), dynamo=True, external_data=False,
    )  # fmt: skip
    quantized = os.path.join(folder, "encoder_int8.onnx")
    quantize_dynamic(path, quantized, weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main()
