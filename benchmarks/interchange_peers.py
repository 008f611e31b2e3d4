# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The other libraries' side of benchmarks.interchange, which runs it with their Pythons.

  python benchmarks/interchange_peers.py FUNCTION ARGUMENT…

It imports nothing of this project. Folders and .npz files are all that passes between the sides;
an .npz file holds inputs under the names that TF-Hub gives them, or a model's outputs.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

_SMALL = {
    "vocab_size": 120,
    "embedding_size": 16,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
#: Models of transformers to save, by name of their folder: each tries what the others do not.
TRANSFORMERS_MODELS: dict[str, dict[str, Any]] = {
    "plain": {**_SMALL, "hidden_act": "gelu_new"},
    "exact gelu": {**_SMALL, "hidden_act": "gelu"},
    "2 groups": {**_SMALL, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "2 inner groups": {**_SMALL, "inner_group_num": 2},
    "2 groups of 2": {
        **_SMALL,
        "num_hidden_layers": 6,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
    },
    "E above H": {**_SMALL, "embedding_size": 48},
    "larger": {
        "vocab_size": 2000,
        "embedding_size": 64,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "max_position_embeddings": 128,
    },
}


def probe_inputs(vocab_size: int, length: int) -> dict[str, np.ndarray]:
    """Three sequences, two of them padded, each of two segments; int32 [3, length]."""
    rng = np.random.default_rng(0)
    lengths = np.array([[length], [length - 3], [length // 2]])
    places = np.arange(length)[np.newaxis]
    mask = places < lengths
    return {
        "input_word_ids": (rng.integers(1, vocab_size, [3, length]) * mask).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "input_type_ids": ((places >= lengths // 2) & mask).astype(np.int32),
        "masked_lm_positions": np.sort(rng.integers(0, length // 2, [3, 4])).astype(np.int32),
    }


def _transformers_outputs(model: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of an ALBERT of transformers by our names; logits of all positions."""
    import torch

    names = {"input_ids": "word_ids", "attention_mask": "mask", "token_type_ids": "type_ids"}
    batch = {k: torch.tensor(inputs[f"input_{v}"]).long() for k, v in names.items()}
    with torch.no_grad():
        encoded = model.albert(**batch)
        heads = model(**batch, output_hidden_states=True)
    outputs = {"sequence_output": encoded.last_hidden_state, "pooled_output": encoded.pooler_output}
    if hasattr(heads, "prediction_logits"):
        outputs.update(mlm_logits=heads.prediction_logits, sop_logits=heads.sop_logits)
    else:
        outputs.update(mlm_logits=heads.logits)
    return {name: value.numpy() for name, value in outputs.items() if value is not None}


def save_transformers(folder: str) -> None:
    """Saves the models, with random weights, as folder/MODEL/safetensors and outputs.

    Every weight is random, for a bias of 0 or a scale of 1 would hide mistakes.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    classes = dict.fromkeys(TRANSFORMERS_MODELS, "AlbertForPreTraining")
    classes["masked LM alone"] = "AlbertForMaskedLM"
    for name, kind in classes.items():
        config = transformers.AlbertConfig(
            **{"num_hidden_groups": 1, **TRANSFORMERS_MODELS.get(name, _SMALL)}
        )
        model = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(os.path.join(folder, name, "safetensors"))
        inputs = probe_inputs(config.vocab_size, 24)
        np.savez(os.path.join(folder, name, "inputs.npz"), **inputs)
        outputs = _transformers_outputs(model, inputs)
        np.savez(os.path.join(folder, name, "outputs.npz"), **outputs)


def run_transformers(folder: str, inputs: str, outputs: str) -> None:
    """Loads a folder as a user does, and writes outputs; any weight left over is an error."""
    import transformers

    model, report = transformers.AlbertForPreTraining.from_pretrained(
        folder, output_loading_info=True
    )
    odd = {what: list(names) for what, names in report.items() if names}
    if odd:
        raise SystemExit(f"transformers: {odd}")
    np.savez(outputs, **_transformers_outputs(model.eval(), np.load(inputs)))


def describe(*packages: str) -> None:
    """Prints the versions of those packages that are installed."""
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            print(name, importlib.metadata.version(name), end=" ")


def tokenize_transformers(folder: str, texts: str, ids: str) -> None:
    """Ids of texts by the library's tokenizer, as JSON."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with open(texts, encoding="utf-8") as file, open(ids, "w", encoding="utf-8") as output:
        json.dump(tokenizer(json.load(file), add_special_tokens=False)["input_ids"], output)


def run_keras_hub(folder: str, inputs: str, outputs: str, texts: str, ids: str) -> None:
    """Outputs of the encoder in a folder, and the ids of texts, as JSON."""
    import keras_hub

    backbone = keras_hub.models.AlbertBackbone.from_preset(folder)
    tokenizer = keras_hub.models.AlbertTokenizer.from_preset(folder)
    names = {"token_ids": "word_ids", "padding_mask": "mask", "segment_ids": "type_ids"}
    with np.load(inputs) as given:
        found = backbone({theirs: given[f"input_{ours}"] for theirs, ours in names.items()})
    np.savez(outputs, **{name: np.asarray(value) for name, value in found.items()})
    with open(texts, encoding="utf-8") as file, open(ids, "w", encoding="utf-8") as output:
        json.dump([np.asarray(tokenizer(line)).tolist() for line in json.load(file)], output)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
