# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""transformers' ALBERT encoder of a Hugging Face folder, as fast as the library has it."""

from __future__ import annotations

import torch
import transformers

#: Names of the model's inputs, in the order of ours.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: The same function as gelu_new, in one operation.
_FAST_ACTIVATIONS = {"gelu_new": "gelu_pytorch_tanh"}


def load_model(folder: str, dtype: torch.dtype = torch.float32) -> transformers.AlbertModel:
    """Returns the encoder with its pooler, without dropout.

    Args:
      folder: of config.json and model.safetensors.
      dtype: of weights and computations.
    """
    config = transformers.AlbertConfig.from_pretrained(folder)
    config.hidden_act = _FAST_ACTIVATIONS.get(config.hidden_act, config.hidden_act)
    model = transformers.AlbertModel.from_pretrained(
        folder, config=config, dtype=dtype, attn_implementation="sdpa"
    )
    return model.eval()
