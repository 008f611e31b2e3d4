# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the encoder and the pooler of presets that keras-hub's `save_to_preset` wrote."""

from __future__ import annotations

import functools
import io
import itertools
import os

import h5py
import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError, first_line
from albert_tf.huggingface import CONFIG
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.weights.source import ArraysSource

#: The file that tells a preset from a Hugging Face folder.
PRESET_WEIGHTS = "model.weights.h5"
#: Our names of the keys of AlbertBackbone's configuration.
_KEYS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
    "embedding_dim": "embedding_size",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# Paths in the file by official name: a table, not a rule, so that names are never guessed.
_TABLES = {
    "bert/embeddings/word_embeddings": "layers/reversible_embedding",
    "bert/embeddings/token_type_embeddings": "layers/embedding",
    "bert/embeddings/position_embeddings": "layers/position_embedding",
}
_LAYERS = {
    "bert/embeddings/LayerNorm": "layers/layer_normalization",
    "bert/encoder/embedding_hidden_mapping_in": "layers/dense",
    "bert/pooler/dense": "layers/dense_1",
}
_BLOCK_LAYERS = {
    "attention_1/self/query": "_self_attention_layer/query_dense",
    "attention_1/self/key": "_self_attention_layer/key_dense",
    "attention_1/self/value": "_self_attention_layer/value_dense",
    "attention_1/output/dense": "_self_attention_layer/output_dense",
    "ffn_1/intermediate/dense": "_feedforward_intermediate_dense",
    "ffn_1/intermediate/output/dense": "_feedforward_output_dense",
    "LayerNorm": "_self_attention_layer_norm",
    "LayerNorm_1": "_feedforward_layer_norm",
}


def _paths(config: AlbertConfig) -> dict[str, str]:
    """Returns the place in the file of each weight of the encoder, by official name."""
    layers = dict(_LAYERS)
    places = itertools.product(range(config.num_hidden_groups), range(config.inner_group_num))
    for number, (group, inner) in enumerate(places):
        ours = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
        theirs = "layers/transformer_encoder" + f"_{number}" * (number > 0)
        layers |= {f"{ours}/{k}": f"{theirs}/{v}" for k, v in _BLOCK_LAYERS.items()}
    paths = {ours: f"{theirs}/vars/0" for ours, theirs in _TABLES.items()}
    for ours, theirs in layers.items():
        names = ("gamma", "beta") if "LayerNorm" in ours else ("kernel", "bias")
        paths |= {f"{ours}/{name}": f"{theirs}/vars/{i}" for i, name in enumerate(names)}
    return paths


class KerasHubSource(ArraysSource):
    """The AlbertBackbone in a preset; a head beside it is not read."""

    @functools.cached_property
    def _weights(self) -> dict[str, np.ndarray]:
        config, path = self._read_config(), os.path.join(self._path, PRESET_WEIGHTS)
        try:
            with h5py.File(io.BytesIO(files.read_bytes(path, "weights file"))) as stored:
                weights = {name: stored[place][()] for name, place in _paths(config).items()}
        except (OSError, KeyError) as error:
            raise AlbertError(
                f"{path} does not hold the weights of an AlbertBackbone ({first_line(error)}); get "
                "it again."
            ) from error
        for name in weights:  # Its attention has axes for the heads.
            if "/attention_1/" in name:
                weights[name] = weights[name].reshape(
                    [config.hidden_size] * (1 + name.endswith("kernel"))
                )
        return weights

    def _read_config(self) -> AlbertConfig:
        path = os.path.join(self._path, CONFIG)
        preset = files.read_object(path, "model configuration")
        values = preset.get("config")
        if preset.get("class_name") != "AlbertBackbone" or not isinstance(values, dict):
            raise AlbertError(
                f"{path} is not of keras-hub's AlbertBackbone: its class_name is "
                f"{short_repr(preset.get('class_name'))}."
            )
        ours = {_KEYS[key]: value for key, value in values.items() if key in _KEYS}
        rate = values.get("dropout", 0.0)
        return AlbertConfig.from_dict(
            {**ours, "hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}, path
        )
