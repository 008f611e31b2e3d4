# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes config.json, without TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any

from albert_tf.config import LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import short_repr

#: Keys with the same name and meaning in albert_config.json.
_SAME_KEYS = sorted(
    {field.name for field in dataclasses.fields(AlbertConfig)} - {"hidden_act", "parameter_sharing"}
)
#: Values that other models of Hugging Face may have differently.
_REQUIRED = {
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
}
#: Hugging Face's "gelu" is the exact function, not the approximation of the TF1 release.
_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


def read_config(path: str) -> AlbertConfig:
    """Reads Hugging Face's config.json.

    Raises:
      AlbertError: it is missing or lacks a key (where Hugging Face uses xxlarge's value), or
        describes a model that is not an ALBERT or not supported.
    """
    values = files.read_object(path, "model configuration")
    if values.get("model_type") != "albert":
        model_type = short_repr(values.get("model_type"))
        raise AlbertError(f"{path} is not of an ALBERT: its model_type is {model_type}.")
    for key, value in _REQUIRED.items():
        if values.get(key, value) != value:
            raise AlbertError(f"{path}: {key} must be {value!r}, not {short_repr(values[key])}.")
    activation = values.get("hidden_act", "gelu_new")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise AlbertError(
            f"{path}: hidden_act must be one of {', '.join(_ACTIVATIONS)}, not "
            f"{short_repr(activation)}."
        )
    ours = {key: values[key] for key in _SAME_KEYS if key in values}
    config = AlbertConfig.from_dict({**ours, "hidden_act": _ACTIVATIONS[activation]}, source=path)
    _check(config)
    return config


def config_values(config: AlbertConfig) -> dict[str, Any]:
    """Returns the content of config.json, without the class and the ids of special pieces.

    The parameter_sharing is "all"; see AlbertConfig.shared_by_groups.

    Raises:
      AlbertError: Hugging Face's code has no such model.
    """
    _check(config)
    values = config.to_dict()
    activations = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    return {
        **{key: values[key] for key in _SAME_KEYS},
        "classifier_dropout_prob": 0.1,  # As in the TF1 release's classifier.
        "hidden_act": activations[config.hidden_act],
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "model_type": "albert",
        "tie_word_embeddings": True,
    }


def _check(config: AlbertConfig) -> None:
    """Raises AlbertError for a model that Hugging Face's code does not have."""
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    # Hugging Face divides where the TF1 release multiplies, which rounds differently.
    if any(int(i / (layers / groups)) != config.attention_group(i) for i in range(layers)):
        raise AlbertError(
            f"With {layers} layers in {groups} groups, Hugging Face's layers are of other groups "
            "than the TF1 release's, so the model cannot be converted."
        )
