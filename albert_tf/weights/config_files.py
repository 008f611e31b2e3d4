# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the configurations that lie beside weights, ours and Hugging Face's, without TensorFlow."""

from __future__ import annotations

import os

from albert_tf.config import CONFIG_FILE, LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown

#: The file that makes a folder a SavedModel.
SAVED_MODEL = "saved_model.pb"
HUGGING_FACE_CONFIG = "config.json"
#: Keys with the same name and meaning in albert_config.json.
SAME_KEYS = (
    "attention_probs_dropout_prob",
    "embedding_size",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "inner_group_num",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_groups",
    "num_hidden_layers",
    "type_vocab_size",
    "vocab_size",
)
#: Values that other models of Hugging Face may have differently.
_REQUIRED = {
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
}
#: Hugging Face's "gelu" is the exact function, not the approximation of the TF1 release.
ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


def config_in(folder: str) -> AlbertConfig | None:
    """Returns the configuration in a model's folder, None if it has none at the top level.

    Raises:
      AlbertError: it is malformed, or of another architecture than ALBERT.
    """
    if files.exists(os.path.join(folder, SAVED_MODEL)):
        return None  # The configuration is in a folder below, with the assets.
    # Ours first: beside it, config.json may belong to something else.
    readers = {CONFIG_FILE: AlbertConfig.from_json, HUGGING_FACE_CONFIG: read_hugging_face_config}
    for name, read in readers.items():
        path = os.path.join(folder, name)
        if files.exists(path):
            return read(path)
    return None


def read_hugging_face_config(path: str) -> AlbertConfig:
    """Reads Hugging Face's config.json.

    Raises:
      AlbertError: it is missing or lacks a key (where Hugging Face uses xxlarge's value), or
        describes a model that is not an ALBERT or not supported.
    """
    values = files.read_object(path, "model configuration")
    if values.get("model_type") != "albert":
        model_type = shown(values.get("model_type"))
        raise AlbertError(f"{path} is not of an ALBERT: its model_type is {model_type}.")
    for key, value in _REQUIRED.items():
        if values.get(key, value) != value:
            raise AlbertError(f"{path}: {key} must be {value!r}, not {shown(values[key])}.")
    activation = values.get("hidden_act", "gelu_new")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise AlbertError(
            f"{path}: hidden_act must be one of {', '.join(ACTIVATIONS)}, not {shown(activation)}."
        )
    ours = {key: values[key] for key in SAME_KEYS if key in values}
    config = AlbertConfig.from_dict({**ours, "hidden_act": ACTIVATIONS[activation]}, source=path)
    check_groups(config)
    return config


def check_groups(config: AlbertConfig) -> None:
    """Raises AlbertError if Hugging Face would assign a layer to another group.

    Hugging Face divides where the TF1 release multiplies, which rounds differently for some sizes.
    """
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    for layer in range(layers):
        if int(layer / (layers / groups)) != config.attention_group(layer):
            raise AlbertError(
                f"With {layers} layers in {groups} groups, Hugging Face's layer {layer} is of "
                "another group than the TF1 release's, so the model cannot be converted."
            )
