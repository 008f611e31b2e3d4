# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes Hugging Face folders: config.json with model.safetensors.

Weights in PyTorch's own format are pickles, which can run any code when they are opened. They are
read with PyTorch's weights-only loading or not at all.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.config import LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained.hugging_face_hub import TOKENIZER_CONFIG, TORCH_WEIGHTS, WEIGHTS
from albert_tf.tokenization.hugging_face_files import PIPELINE
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, Tokenizer, find_vocabulary
from albert_tf.weights.config_files import (
    ACTIVATIONS,
    HUGGING_FACE_CONFIG,
    SAME_KEYS,
    check_groups,
    read_hugging_face_config,
)
from albert_tf.weights.hugging_face_tokenizer import sentencepiece_pipeline
from albert_tf.weights.names import PROJECTION, hugging_face_names, shared_by_groups
from albert_tf.weights.safetensors import SafetensorsFile, write_safetensors
from albert_tf.weights.source import Source, bytes_in, open_tokenizer

_PREFIX = "albert."
#: Copies of tied weights, which some files also hold, and their originals.
_COPIES = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
_CONSTANTS = ("albert.embeddings.position_ids", "embeddings.position_ids")


class HuggingFaceSource(Source):
    """An ALBERT in a folder that Hugging Face's `save_pretrained` wrote."""

    def __init__(self, folder: str) -> None:
        self.location = self._path = folder.rstrip("/")

    @functools.cached_property
    def _file(self) -> SafetensorsFile | _TorchFile:
        path = os.path.join(self.location, WEIGHTS)
        if files.exists(path):
            file = SafetensorsFile(path)
            if any(name.endswith(":0") for name in file.shapes):
                raise AlbertError(
                    f"{path} was saved by a TensorFlow class of Hugging Face; save it from the "
                    "PyTorch class (AlbertForPreTraining.from_pretrained(folder, from_tf=True))."
                )
            return file
        if files.exists(path + ".index.json"):
            raise AlbertError(
                f"The weights in {self.location} are split into several files; save them as one "
                f"{WEIGHTS} (save_pretrained with a larger max_shard_size)."
            )
        path = os.path.join(self.location, TORCH_WEIGHTS)
        if files.exists(path):
            return _TorchFile(path)
        raise AlbertError(f"{self.location} has a {HUGGING_FACE_CONFIG} but no {WEIGHTS}.")

    @functools.cached_property
    def _stored(self) -> dict[str, tuple[str, bool]]:
        """The name in the file, and whether it holds the transpose, by official name."""
        left = dict.fromkeys(self._file.shapes)
        stored = {}
        for ours, (theirs, transposed) in hugging_face_names(self.config()).items():
            # Encoders saved alone lack the prefix; tied weights may have only the copy.
            bare = theirs[len(_PREFIX) :] if theirs.startswith(_PREFIX) else theirs
            copies = [copy for copy, original in _COPIES.items() if original == theirs]
            name = next((name for name in (theirs, bare, *copies) if name in left), None)
            if name:
                stored[ours] = (name, transposed)
                del left[name]
        stored.update({name: (name, False) for name in left if name not in self.state})
        return stored

    @functools.cached_property
    def state(self) -> list[str]:
        """See Source: copies of tied weights, tables of constants, a projection without effect.

        Raises:
          AlbertError: a copy differs from its original, or the projection has an effect.
        """
        names = self._file.shapes
        pairs = [pair for pair in _COPIES.items() if names.keys() >= set(pair)]
        for copy, original in pairs:
            values = self._file.read(copy), self._file.read(original)
            if not np.array_equal(*values, equal_nan=True):
                raise AlbertError(
                    f"In {self.location}, {copy} differs from {original}; a model without tied "
                    "output embeddings is not an ALBERT."
                )
        constants = [name for name in _CONSTANTS if name in names]
        return [copy for copy, _ in pairs] + constants + self._identity_projection()

    def _identity_projection(self) -> list[str]:
        """Returns the weights of the projection in a model with E = H; our model has none.

        Raises:
          AlbertError: it is not the identity.
        """
        size = self.config().hidden_size
        if self.config().embedding_size != size:
            return []
        ending = f"{PROJECTION[len(_PREFIX) :]}.weight"
        kernel = next((name for name in self._file.shapes if name.endswith(ending)), None)
        if kernel is None:
            return []
        bias = kernel[: -len("weight")] + "bias"
        if bias not in self._file.shapes:
            raise AlbertError(f"{self.location} has {kernel}, but not {bias}; get it again.")
        identity = {kernel: np.eye(size), bias: np.zeros(size)}
        if not all(np.array_equal(self._file.read(name), v) for name, v in identity.items()):
            raise AlbertError(
                f"In {self.location}, embedding_size equals hidden_size, but {kernel} projects "
                "one to the other, which our model does not support."
            )
        return list(identity)

    @functools.cached_property
    def shapes(self) -> dict[str, list[int]]:
        """See Source."""
        sizes = self._file.shapes
        return {
            ours: list(sizes[name])[:: -1 if transposed else 1]
            for ours, (name, transposed) in self._stored.items()
        }

    def read(self, name: str) -> np.ndarray:
        """See Source."""
        stored, transposed = self._stored[name]
        values = self._file.read(stored)
        return values.T if transposed else values

    def _read_config(self) -> AlbertConfig:
        """Reads config.json."""
        return read_hugging_face_config(os.path.join(self.location, HUGGING_FACE_CONFIG))

    def _stored_bytes(self) -> int:
        """See Source."""
        return sum(bytes_in(self.location, name) for name in (WEIGHTS, TORCH_WEIGHTS))

    def tokenizer(self, lower_case: bool | None = None) -> Tokenizer | None:
        """Opens spiece.model or vocab.txt with its settings, or else tokenizer.json."""
        found = find_vocabulary(self.location)
        return open_tokenizer(found and self.location, lower_case)


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


def write_hugging_face(
    folder: str,
    config: AlbertConfig,
    tokenizer: Tokenizer | None,
    weights: Mapping[str, np.ndarray],
) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files.

    Args:
      folder: the folder to write to.
      config: of the model.
      tokenizer: the model's tokenizer, None if it is unknown.
      weights: by official name; all float32 or all float16, and written as they are.

    Raises:
      AlbertError: Hugging Face's code has no such model.
    """
    config = shared_by_groups(config)
    check_groups(config)
    values = config.to_dict()
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    written = {
        **{key: values[key] for key in SAME_KEYS},
        "architectures": ["AlbertForPreTraining"],
        "classifier_dropout_prob": 0.1,  # As in the TF1 release's classifier.
        "hidden_act": activations[config.hidden_act],
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "model_type": "albert",
        "tie_word_embeddings": True,
    }
    if tokenizer:
        written["pad_token_id"] = tokenizer.pad_id
        written["bos_token_id"], written["eos_token_id"] = tokenizer.cls_id, tokenizer.sep_id
        _write_tokenizer(folder, tokenizer)
    files.write_json(os.path.join(folder, HUGGING_FACE_CONFIG), written)
    names = hugging_face_names(config)
    tensors = {names[k].name: v.T if names[k].transposed else v for k, v in weights.items()}
    if config.embedding_size == config.hidden_size:
        dtype = next(iter(tensors.values())).dtype
        tensors[f"{PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=dtype)
        tensors[f"{PROJECTION}.bias"] = np.zeros(config.hidden_size, dtype)
    write_safetensors(os.path.join(folder, WEIGHTS), tensors)


def _write_tokenizer(folder: str, tokenizer: Tokenizer) -> None:
    spec = tokenizer.spec
    # Without model_input_names, transformers 5 does not pass the segments of a pair to the model.
    options: dict[str, Any] = {
        "do_lower_case": spec.lower_case,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    if spec.kind == SENTENCEPIECE:
        name = "spiece.model"
        options.update(tokenizer_class="AlbertTokenizer", keep_accents=not spec.strip_accents)
        if not spec.split_digit_comma:
            options["split_digit_comma"] = False  # A setting of ours; the default is the release's.
        pipeline = sentencepiece_pipeline(tokenizer)
        if pipeline:
            files.write_json(os.path.join(folder, PIPELINE), pipeline)
    else:
        name = "vocab.txt"
        options.update(tokenizer_class="BertTokenizer", strip_accents=spec.strip_accents)
    files.write_bytes(os.path.join(folder, name), tokenizer.data)
    files.write_json(os.path.join(folder, TOKENIZER_CONFIG), options)
