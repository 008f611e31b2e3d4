# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the weights in Hugging Face folders, and writes such folders, on any file system.

Weights in PyTorch's own format are pickles, which can run any code when they are opened. They are
read with PyTorch's weights-only loading or not at all.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError, first_line
from albert_tf.huggingface import CONFIG, INDEX, TORCH_WEIGHTS, WEIGHTS
from albert_tf.huggingface.config import config_values, head_values
from albert_tf.huggingface.sentence_transformers import EMBEDDING, write_modules
from albert_tf.huggingface.tokenizer import tokenizer_files
from albert_tf.io import files
from albert_tf.io.json_values import joined

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

#: Old files hold a table of positions in int64 beside the weights.
_DTYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": tf.bfloat16.as_numpy_dtype,
    "I64": np.int64,
}
_PREFIX = "albert."
#: Names of copies of tied weights, which some files also hold or have instead.
_COPIES = {
    "albert.embeddings.word_embeddings.weight": "predictions.decoder.weight",
    "predictions.bias": "predictions.decoder.bias",
}
_CONSTANTS = ("albert.embeddings.position_ids", "embeddings.position_ids")
#: The dense layer from width E to H, which Hugging Face also has for E = H.
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
# Hugging Face's names by official name: a table, not a rule, so that names are never guessed.
_TABLES = {
    "bert/embeddings/word_embeddings": "albert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
_LAYERS = {
    "bert/encoder/embedding_hidden_mapping_in": _PROJECTION,
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
}
#: Hugging Face's class of the models that have a weight, the largest first.
_CLASSES = {
    "cls/seq_relationship/output_bias": "AlbertForPreTraining",
    "cls/predictions/output_bias": "AlbertForMaskedLM",
    "bert/embeddings/word_embeddings": "AlbertModel",
}
_GROUP = "bert/encoder/transformer/group_{}/inner_group_{}/"
_THEIR_GROUP = "albert.encoder.albert_layer_groups.{}.albert_layers.{}."
_GROUP_LAYERS = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
    "LayerNorm": "attention.LayerNorm",
    "LayerNorm_1": "full_layer_layer_norm",
}


def _names(config: AlbertConfig) -> dict[str, str]:
    """Returns Hugging Face's names of all weights, by official name; kernels are transposed."""
    layers = dict(_LAYERS)
    if config.embedding_size == config.hidden_size:
        del layers["bert/encoder/embedding_hidden_mapping_in"]
    for place in itertools.product(range(config.num_hidden_groups), range(config.inner_group_num)):
        ours, theirs = _GROUP.format(*place), _THEIR_GROUP.format(*place)
        layers.update({ours + k: theirs + v for k, v in _GROUP_LAYERS.items()})
    names = dict(_TABLES)
    for ours, theirs in layers.items():
        weight, bias = ("gamma", "beta") if "LayerNorm" in ours else ("kernel", "bias")
        names |= {f"{ours}/{weight}": f"{theirs}.weight", f"{ours}/{bias}": f"{theirs}.bias"}
    return names


def read_hugging_face(folder: str, config: AlbertConfig) -> dict[str, np.ndarray]:
    """Reads the weights of an ALBERT in a folder that Hugging Face's `save_pretrained` wrote.

    Returns:
      The weights by official name, in their official orientation and the dtype of the file;
      weights without an official name keep their own. Copies of tied weights, tables of constants,
      and a projection without effect, if E = H, are left out.

    Raises:
      AlbertError: there are no weights that can be read safely, copies of tied weights differ, or
        the projection of a model with E = H has an effect.
    """
    stored, weights = _read_all(folder), {}
    for name in _CONSTANTS:
        stored.pop(name, None)
    for ours, theirs in _names(config).items():
        # Encoders saved alone lack the prefix.
        names = (theirs, theirs.removeprefix(_PREFIX), _COPIES.get(theirs, theirs))
        found = {name: stored.pop(name) for name in names if name in stored}
        if found:
            name, *copies = found
            for copy in copies:
                if not np.array_equal(found[copy], found[name], equal_nan=True):
                    raise AlbertError(
                        f"In {folder}, {copy} differs from {name}, which our model uses for both; "
                        "get the model again."
                    )
            weights[ours] = found[name].T if ours.endswith("/kernel") else found[name]
    for theirs, identity in _identity_projection(config, np.float32).items():
        for name in {theirs, theirs.removeprefix(_PREFIX)} & {*stored}:
            if not np.array_equal(stored.pop(name), identity):
                raise AlbertError(
                    f"In {folder}, embedding_size equals hidden_size, but {name} projects one to "
                    "the other, which our model does not support."
                )
    return {**weights, **stored}


def _read_all(folder: str) -> dict[str, np.ndarray]:
    """Reads the weights in a folder, which may be in several parts, or in both formats."""
    for name, read in ((WEIGHTS, read_safetensors), (TORCH_WEIGHTS, _read_torch)):
        path = os.path.join(folder, name)
        if files.exists(path):
            return read(path)
        if files.exists(index := path + INDEX):
            places = files.read_object(index, "index of the weights").get("weight_map")
            if not isinstance(places, dict):
                raise AlbertError(f"The index {index} has no weight_map; get it again.")
            parts = dict.fromkeys(files.join_named(folder, part, index) for part in places.values())
            stored = {name: value for part in parts for name, value in read(part).items()}
            if lacking := {*places} - {*stored}:
                raise AlbertError(
                    f"The parts that {index} names lack {joined(sorted(lacking))}; get them again."
                )
            return stored
    return read_safetensors(os.path.join(folder, WEIGHTS))


def _identity_projection(config: AlbertConfig, dtype: np.dtype) -> dict[str, np.ndarray]:
    """Returns the projection without effect that Hugging Face's model has if E = H."""
    size = config.hidden_size
    if config.embedding_size != size:
        return {}
    weight, bias = np.eye(size, dtype=dtype), np.zeros(size, dtype)
    return {f"{_PROJECTION}.weight": weight, f"{_PROJECTION}.bias": bias}


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    """Reads all tensors of a safetensors file.

    Raises:
      AlbertError: the file is missing, damaged or holds tensors of other types than ours.
    """
    try:
        return {
            name: np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
            # The library copies the bytes, so nothing else keeps them.
            for name, entry in deserialize(files.read_bytes(path, "weights file"))
        }
    except (SafetensorError, KeyError, ValueError) as error:
        raise AlbertError(
            f"{path} is not an intact safetensors file of float weights ({first_line(error)}); get "
            "it again."
        ) from error


def _read_torch(path: str) -> dict[str, np.ndarray]:
    """Reads weights in PyTorch's own format with its weights-only loader."""
    try:
        import torch

        if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 6):
            raise ImportError("CVE-2025-32434 in the installed one")
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        return {
            name: (tensor.float() if tensor.is_floating_point() else tensor).numpy()
            for name, tensor in tensors.items()
        }
    except Exception as error:  # PyTorch's loader raises errors of many types.
        raise AlbertError(
            f"{path} is a pickle, and cannot be read safely with PyTorch ({first_line(error)}). "
            f"Save the model as {WEIGHTS} (save_pretrained with safe_serialization=True), or "
            "install torch>=2.6."
        ) from error


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors of one dtype, sorted by name; the file is either complete or untouched."""
    # The library writes the bytes as they are in memory, transposed or not.
    contiguous = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    # Hugging Face's library for PyTorch writes the same metadata.
    files.write_bytes(path, save(contiguous, metadata={"format": "pt"}))


def write_hugging_face(
    folder: str,
    config: AlbertConfig,
    tokenizer: Tokenizer | None,
    weights: Mapping[str, np.ndarray],
    task: Mapping[str, Any] = {},
    metrics: Mapping[str, Any] = {},
) -> None:
    """Writes config.json, model.safetensors and the files of the tokenizer, if it is known.

    Args:
      folder, config, tokenizer: where to, and what belongs to the weights.
      weights: by official name, all float32 or all float16; they are written as they are.
      task: the content of task.json, if the model has the head of a task.
      metrics: of the model, for the model card, which models with a head have.

    Raises:
      AlbertError: Hugging Face's code has no such model.
    """
    config = config.shared_by_groups()
    values, longest = config_values(config), config.max_position_embeddings
    if task:
        values |= head_values(task)
        longest = task["max_seq_length"]
        if task["task"] == EMBEDDING:
            write_modules(folder, task, config, tokenizer)
            values["output_hidden_states"] = True
        rows = "".join(f"| {name} | {value:.6g} |\n" for name, value in metrics.items())
        card = f"---\nlibrary_name: transformers\n---\n\n# {values['architectures'][0]}\n\n"
        card += f"Fine-tuned with albert_tf.\n\n| metric | of the evaluation |\n|---|---|\n{rows}"
        files.write_text(os.path.join(folder, "README.md"), card)
    else:
        values["architectures"] = [next(kind for name, kind in _CLASSES.items() if name in weights)]
    if tokenizer:
        values["pad_token_id"] = tokenizer.pad_id
        values["bos_token_id"], values["eos_token_id"] = tokenizer.cls_id, tokenizer.sep_id
        for name, data in tokenizer_files(tokenizer, longest).items():
            files.write_bytes(os.path.join(folder, name), data)
    files.write_json(os.path.join(folder, CONFIG), values)
    tensors = _identity_projection(config, next(iter(weights.values())).dtype)
    for name, theirs in _names(config).items():
        if name in weights:
            tensors[theirs] = weights[name].T if name.endswith("/kernel") else weights[name]
    write_safetensors(os.path.join(folder, WEIGHTS), tensors)
