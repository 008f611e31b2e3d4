# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the weights in Hugging Face folders, and writes such folders, on any file system.

Weights in PyTorch's own format are pickles, which can run any code when they are opened. They are
read with PyTorch's weights-only loading or not at all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError, first_line
from albert_tf.huggingface import CONFIG, TORCH_WEIGHTS, WEIGHTS
from albert_tf.huggingface.config import config_values
from albert_tf.huggingface.tokenizer import write_tokenizer
from albert_tf.io import files
from albert_tf.io.json_values import short_repr

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

#: Old files hold a table of positions in int64 beside the weights.
_DTYPES = ("F32", "F16", "BF16", "I64")
_PREFIX = "albert."
#: Copies of tied weights, which some files also hold, and their originals.
_COPIES = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
_CONSTANTS = ("albert.embeddings.position_ids", "embeddings.position_ids")
# Hugging Face's names by official name: a table, not a rule, so that names are never guessed.
_TABLES = {
    "bert/embeddings/word_embeddings": "albert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
}
#: The dense layer from width E to H, which Hugging Face also has for E = H.
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_DENSE = {
    "bert/encoder/embedding_hidden_mapping_in": _PROJECTION,
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
}
_NORMS = {
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
}
_GROUP = "bert/encoder/transformer/group_{}/inner_group_{}"
_THEIR_GROUP = "albert.encoder.albert_layer_groups.{}.albert_layers.{}"
_GROUP_DENSE = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
}
_GROUP_NORMS = {
    "LayerNorm": "attention.LayerNorm",
    "LayerNorm_1": "full_layer_layer_norm",
}


class _Name(NamedTuple):
    """Hugging Face's name for a weight, and whether it stores the transpose."""

    name: str
    transposed: bool = False


def _names(config: AlbertConfig) -> dict[str, _Name]:
    """Returns the names of all pretraining weights, by official name; all layers are shared."""
    dense, norms = dict(_DENSE), dict(_NORMS)
    if config.embedding_size == config.hidden_size:
        del dense["bert/encoder/embedding_hidden_mapping_in"]
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            ours, theirs = _GROUP.format(group, inner), _THEIR_GROUP.format(group, inner)
            dense.update({f"{ours}/{k}": f"{theirs}.{v}" for k, v in _GROUP_DENSE.items()})
            norms.update({f"{ours}/{k}": f"{theirs}.{v}" for k, v in _GROUP_NORMS.items()})
    names = {ours: _Name(theirs) for ours, theirs in _TABLES.items()}
    for ours, theirs in dense.items():
        names[f"{ours}/kernel"] = _Name(f"{theirs}.weight", transposed=True)
        names[f"{ours}/bias"] = _Name(f"{theirs}.bias")
    for ours, theirs in norms.items():
        names[f"{ours}/gamma"] = _Name(f"{theirs}.weight")
        names[f"{ours}/beta"] = _Name(f"{theirs}.bias")
    return names


class HuggingFaceWeights:
    """The weights of an ALBERT in a folder that Hugging Face's `save_pretrained` wrote.

    Attributes:
      shapes: by official name; weights without an official name keep their own.
      state: names of other tensors: copies of tied weights, tables of constants, and a projection
        without effect, which Hugging Face has if E = H.
    """

    def __init__(self, folder: str, config: AlbertConfig) -> None:
        """Opens the file with the weights.

        Args:
          folder: the folder.
          config: that of its config.json.

        Raises:
          AlbertError: there are no weights that can be read safely, a copy of a tied weight differs
            from its original, or the projection of a model with E = H has an effect.
        """
        self._folder, self._file = folder, _open(folder)
        left = dict.fromkeys(self._file.shapes)
        self.state = [*self._copies(), *(name for name in _CONSTANTS if name in left)]
        if config.embedding_size == config.hidden_size:
            self.state += self._identity_projection(config.hidden_size)
        self._stored: dict[str, _Name] = {}
        for ours, (theirs, transposed) in _names(config).items():
            # Encoders saved alone lack the prefix; tied weights may have only the copy.
            bare = theirs[len(_PREFIX) :] if theirs.startswith(_PREFIX) else theirs
            copies = [copy for copy, original in _COPIES.items() if original == theirs]
            if name := next((name for name in (theirs, bare, *copies) if name in left), None):
                self._stored[ours] = _Name(name, transposed)
                del left[name]
        self._stored.update({name: _Name(name) for name in left if name not in self.state})
        self.shapes = {
            ours: self._file.shapes[name][:: -1 if transposed else 1]
            for ours, (name, transposed) in self._stored.items()
        }

    def read(self, name: str) -> np.ndarray:
        """Returns a weight by its name in `shapes`, as float32 and in its official orientation."""
        stored, transposed = self._stored[name]
        values = self._file.read(stored)
        return values.T if transposed else values

    def _copies(self) -> Iterator[str]:
        """Yields the names of copies, which equal their originals."""
        for copy, original in _COPIES.items():
            if self._file.shapes.keys() >= {copy, original}:
                values = self._file.read(copy), self._file.read(original)
                if not np.array_equal(*values, equal_nan=True):
                    raise AlbertError(
                        f"In {self._folder}, {copy} differs from {original}; a model without tied "
                        "output embeddings is not an ALBERT."
                    )
                yield copy

    def _identity_projection(self, size: int) -> list[str]:
        """Returns the names of the projection from E to H = E, if there is one."""
        ending = f"{_PROJECTION[len(_PREFIX) :]}.weight"
        kernel = next((name for name in self._file.shapes if name.endswith(ending)), None)
        if kernel is None:
            return []
        bias = kernel[: -len("weight")] + "bias"
        if bias not in self._file.shapes:
            raise AlbertError(f"{self._folder} has {kernel}, but not {bias}; get it again.")
        identity = {kernel: np.eye(size), bias: np.zeros(size)}
        if not all(np.array_equal(self._file.read(name), v) for name, v in identity.items()):
            raise AlbertError(
                f"In {self._folder}, embedding_size equals hidden_size, but {kernel} projects "
                "one to the other, which our model does not support."
            )
        return list(identity)


def _open(folder: str) -> SafetensorsFile | _TorchFile:
    """Opens the weights in a folder."""
    path = os.path.join(folder, WEIGHTS)
    if files.exists(path):
        return SafetensorsFile(path)
    path = os.path.join(folder, TORCH_WEIGHTS)
    if files.exists(path):
        return _TorchFile(path)
    raise AlbertError(f"{folder} has a {CONFIG} but no {WEIGHTS}.")


class SafetensorsFile:
    """A safetensors file, whose tensors are read one by one.

    Attributes:
      shapes: by name.

    Raises:
      AlbertError: the file is missing, damaged or holds tensors of other types.
    """

    def __init__(self, path: str) -> None:
        files.check_file(path, "weights file")
        try:
            with _local_copy(path) as local:
                # The file is mapped into memory, so the copy can be deleted once it is open.
                self._file = safe_open(local, framework="numpy")
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise AlbertError(
                f"{path} is not an intact safetensors file ({first_line(error)}); get it again."
            ) from error
        for name, entry in slices.items():
            if entry.get_dtype() not in _DTYPES:
                raise AlbertError(
                    f"{path}: {short_repr(name)} has type {entry.get_dtype()}; only "
                    f"{', '.join(_DTYPES)} can be read."
                )
        self.shapes = {name: list(entry.get_shape()) for name, entry in slices.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor; float16 and bfloat16 become float32, which is exact."""
        values = self._file.get_tensor(name)
        return values if values.dtype == np.int64 else values.astype(np.float32, copy=False)


@contextlib.contextmanager
def _local_copy(path: str) -> Iterator[str]:
    """Yields the path itself, or that of a temporary copy if it is on a remote file system."""
    if files.is_local(path):
        yield path
        return
    with files.space_for("temporary files"), tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        tf.io.gfile.copy(path, local)
        yield local


class _TorchFile:
    """Weights in PyTorch's own format, read with its weights-only loader."""

    def __init__(self, path: str) -> None:
        safer = f"Save the model as {WEIGHTS} (save_pretrained with safe_serialization=True)"
        if importlib.util.find_spec("torch") is None:
            raise AlbertError(
                f"{path} is a pickle, which only PyTorch can read safely, and PyTorch is not "
                f"installed. {safer}, or install torch>=2.6."
            )
        import torch

        if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 6):
            raise AlbertError(
                f"{path} is a pickle, which PyTorch {torch.__version__} cannot read safely "
                f"(CVE-2025-32434). {safer}, or install torch>=2.6."
            )
        try:
            self._tensors = torch.load(path, map_location="cpu", weights_only=True)
            self.shapes = {name: list(tensor.shape) for name, tensor in self._tensors.items()}
        except Exception as error:  # PyTorch's loader raises errors of many types.
            raise AlbertError(f"{path} cannot be read as weights alone. {safer}.") from error

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor; float16 and bfloat16 become float32."""
        tensor = self._tensors[name]
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


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
) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files.

    Args:
      folder: the folder to write to.
      config: the model's.
      tokenizer: the model's, None if it is unknown.
      weights: by official name; all float32 or all float16, and written as they are.

    Raises:
      AlbertError: Hugging Face's code has no such model.
    """
    config = config.shared_by_groups()
    values = config_values(config)
    if tokenizer:
        values["pad_token_id"] = tokenizer.pad_id
        values["bos_token_id"], values["eos_token_id"] = tokenizer.cls_id, tokenizer.sep_id
        write_tokenizer(folder, tokenizer)
    files.write_json(os.path.join(folder, CONFIG), values)
    names = _names(config)
    tensors = {names[k].name: v.T if names[k].transposed else v for k, v in weights.items()}
    if config.embedding_size == config.hidden_size:
        dtype = next(iter(tensors.values())).dtype
        tensors[f"{_PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=dtype)
        tensors[f"{_PROJECTION}.bias"] = np.zeros(config.hidden_size, dtype)
    write_safetensors(os.path.join(folder, WEIGHTS), tensors)
