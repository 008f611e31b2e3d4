# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders: config.json with model.safetensors, read and written.

Weights in PyTorch's own format are pickles, which can run any program when they are opened. They
are read through PyTorch's weights-only loading or not at all.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, Tokenizer
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
from albert_tf.weights.source import Source, find_only

WEIGHTS = "model.safetensors"
TORCH_WEIGHTS = "pytorch_model.bin"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_PIPELINE = "tokenizer.json"
_PREFIX = "albert."
#: Copies of tied weights, which some files hold as well, and what they are copies of.
_COPIES = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
_CONSTANTS = ("albert.embeddings.position_ids", "embeddings.position_ids")


class HuggingFaceSource(Source):
    """A folder that `save_pretrained` wrote, with an ALBERT in it.

    Args:
      folder: with config.json.
    """

    def __init__(self, folder: str) -> None:
        self.location = folder.rstrip("/")

    @functools.cached_property
    def _file(self) -> SafetensorsFile | _TorchFile:
        path = os.path.join(self.location, WEIGHTS)
        if tf.io.gfile.exists(path):
            file = SafetensorsFile(path)
            if any(name.endswith(":0") for name in file.shapes):
                raise AlbertError(
                    f"{path} was saved by a TensorFlow class of Hugging Face; save it from the "
                    "PyTorch class (AlbertForPreTraining.from_pretrained(folder, from_tf=True))."
                )
            return file
        if tf.io.gfile.exists(path + ".index.json"):
            raise AlbertError(
                f"The weights in {self.location} are cut into several files; save them as one "
                f"{WEIGHTS} (save_pretrained with a larger max_shard_size)."
            )
        path = os.path.join(self.location, TORCH_WEIGHTS)
        if tf.io.gfile.exists(path):
            return _TorchFile(path)
        raise AlbertError(f"{self.location} has a {HUGGING_FACE_CONFIG} but no {WEIGHTS}.")

    @functools.cached_property
    def _stored(self) -> dict[str, tuple[str, bool]]:
        """Name in the file, and whether it is the transpose, by official name."""
        left = dict.fromkeys(self._file.shapes)
        stored = {}
        for ours, (theirs, transposed) in hugging_face_names(self.config()).items():
            # Without heads, Hugging Face leaves out the prefix; of tied weights it keeps one.
            bare = theirs[len(_PREFIX) :] if theirs.startswith(_PREFIX) else theirs
            copy = next((c for c, original in _COPIES.items() if original == theirs), theirs)
            found = next((name for name in (theirs, bare, copy) if name in left), None)
            if found:
                stored[ours] = (found, transposed)
                del left[found]
        stored.update({name: (name, False) for name in left if name not in self.state})
        return stored

    @functools.cached_property
    def state(self) -> list[str]:
        """See Source; here copies of tied weights, tables of constants, a projection that is none.

        Raises:
          AlbertError: what should be a copy is none, or what should do nothing does something.
        """
        there = self._file.shapes
        for copy, original in _COPIES.items():
            if copy in there and original in there:
                values = self._file.read(copy), self._file.read(original)
                if not np.array_equal(*values):
                    raise AlbertError(
                        f"In {self.location}, {copy} differs from {original}; a model whose "
                        "output embeddings are not tied is no ALBERT."
                    )
        copies = [copy for copy, original in _COPIES.items() if copy in there and original in there]
        constants = [name for name in _CONSTANTS if name in there]
        return copies + constants + self._identity()

    def _identity(self) -> list[str]:
        """The projection of a model with E = H, where ours has none: it must not do anything."""
        config = self.config()
        if config.embedding_size != config.hidden_size:
            return []
        names = [
            name
            for name in self._file.shapes
            if name.endswith(f"{PROJECTION[len(_PREFIX) :]}.weight")
        ]
        names += [name[: -len("weight")] + "bias" for name in names]
        wanted = (np.eye(config.hidden_size), np.zeros(config.hidden_size))
        if not all(np.array_equal(self._file.read(name), w) for name, w in zip(names, wanted)):
            raise AlbertError(
                f"In {self.location}, embedding_size is hidden_size and there is a projection "
                f"between them ({names[0]}), which our model has not."
            )
        return names

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

    def config(self) -> AlbertConfig:
        """The configuration of config.json."""
        return read_hugging_face_config(os.path.join(self.location, HUGGING_FACE_CONFIG))

    def tokenizer(self, lower_case: bool | None = None) -> Tokenizer | None:
        """Of spiece.model or vocab.txt; tokenizer.json here is of another kind than ours."""
        path = find_only(self.location, "spiece.model", "vocab.txt")
        if not path:
            return None
        options: Mapping[str, Any] = {}
        said = os.path.join(self.location, _TOKENIZER_CONFIG)
        if tf.io.gfile.exists(said):
            options = files.read_object(said, "tokenizer configuration")
            for key in ("do_lower_case", "keep_accents", "strip_accents"):
                if not isinstance(options.get(key), (bool, type(None))):
                    raise AlbertError(f"{said}: {key} must be true, false or null.")
        if lower_case is None:
            lower_case = bool(options.get("do_lower_case", True))
        if path.endswith(".model"):
            strip = not options.get("keep_accents", False)
        else:
            strip = options.get("strip_accents")
        return Tokenizer.from_file(path, lower_case, strip_accents=strip)


class _TorchFile:
    """PyTorch's own format, through its loader of weights alone."""

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
        except Exception as error:  # Whatever PyTorch's loader finds wrong.
            raise AlbertError(f"{path} cannot be read as weights alone. {safer}.") from error

    def read(self, name: str) -> np.ndarray:
        """A tensor; float16 and bfloat16 become float32."""
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
      folder: where to.
      config: of the model.
      tokenizer: of its vocabulary, if that is known.
      weights: by official name, float32, or float16 to be written as such.

    Raises:
      AlbertError: Hugging Face's code has no such model.
    """
    config = shared_by_groups(config)
    check_groups(config)
    values = config.to_dict()
    spelled = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    written = {key: values[key] for key in SAME_KEYS}
    written.update(
        architectures=["AlbertForPreTraining"],
        classifier_dropout_prob=0.1,  # As in the TF1 release's classifier.
        hidden_act=spelled[config.hidden_act],
        layer_norm_eps=LAYER_NORM_EPSILON,
        model_type="albert",
        tie_word_embeddings=True,
    )
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
    # Without the second, transformers 5 tells the model nothing of the segments of a pair.
    options: dict[str, Any] = {
        "do_lower_case": spec.lower_case,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    if spec.kind == SENTENCEPIECE:
        name = "spiece.model"
        options.update(tokenizer_class="AlbertTokenizer", keep_accents=not spec.strip_accents)
        pipeline = sentencepiece_pipeline(tokenizer)
        if pipeline:
            files.write_json(os.path.join(folder, _PIPELINE), pipeline)
    else:
        name = "vocab.txt"
        options.update(tokenizer_class="BertTokenizer", strip_accents=spec.strip_accents)
    files.write_bytes(os.path.join(folder, name), tokenizer.data)
    files.write_json(os.path.join(folder, _TOKENIZER_CONFIG), options)
