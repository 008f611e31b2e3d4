# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads variables and assets of SavedModels from TF-Hub, without running them.

The activation and the numbers of layers and heads cannot be derived from a SavedModel safely. So
albert_config.json must be in its assets, where the release's hub modules have it, or beside
saved_model.pb.
"""

from __future__ import annotations

import functools
import math
import os

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files
from albert_tf.weights.checkpoint import TensorFlowSource, weight_keys

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_BLOCK = "bert/encoder/transformer/group_0/inner_group_0"
#: Official names by those of TF Model Garden, which TF-Hub's TF2 encoders were made with. It has
#: neither groups nor inner groups.
_MODEL_GARDEN = {
    "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "embedding_projection": "bert/encoder/embedding_hidden_mapping_in",
    "transformer/self_attention/query": f"{_BLOCK}/attention_1/self/query",
    "transformer/self_attention/key": f"{_BLOCK}/attention_1/self/key",
    "transformer/self_attention/value": f"{_BLOCK}/attention_1/self/value",
    "transformer/self_attention/attention_output": f"{_BLOCK}/attention_1/output/dense",
    "transformer/self_attention_layer_norm": f"{_BLOCK}/LayerNorm",
    "transformer/intermediate": f"{_BLOCK}/ffn_1/intermediate/dense",
    "transformer/output": f"{_BLOCK}/ffn_1/intermediate/output/dense",
    "transformer/output_layer_norm": f"{_BLOCK}/LayerNorm_1",
    "pooler_transform": "bert/pooler/dense",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
}


class SavedModelSource(TensorFlowSource):
    """A TF1 hub module of the release, or a TF2 SavedModel with official or Model Garden names.

    Its path is the folder with saved_model.pb.
    """

    @property
    def _prefix(self) -> str:
        return os.path.join(self.location, "variables", "variables")

    @functools.cached_property
    def _keys(self) -> dict[str, str]:
        if _OBJECT_GRAPH not in self._stored:
            return weight_keys(self._stored)
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        try:
            graph.ParseFromString(self._reader.get_tensor(_OBJECT_GRAPH))
        except (DecodeError, IndexError, tf.errors.OpError) as error:
            raise AlbertError(
                f"The SavedModel {self.location} is damaged ({first_line(error)}); get it again."
            ) from error
        keys = {}
        for attribute in (a for node in graph.nodes for a in node.attributes):
            if attribute.name != "VARIABLE_VALUE" or not attribute.full_name:
                continue
            name = _official_name(attribute.full_name)
            if name in keys:
                raise AlbertError(f"Two variables in {self.location} are called {name!r}.")
            keys[name] = attribute.checkpoint_key
        return keys

    @functools.cached_property
    def shapes(self) -> dict[str, list[int]]:
        """Shapes of float weights by official name, without an axis for the heads."""
        dtypes = self._reader.get_variable_to_dtype_map()
        return {
            name: _without_heads(name, self._stored[key])
            for name, key in self._keys.items()
            if dtypes[key].is_floating
        }

    def _read_config(self) -> AlbertConfig | None:
        """Reads albert_config.json in the assets, or beside saved_model.pb."""
        folders = (os.path.join(self.location, "assets"), self.location)
        paths = (os.path.join(folder, CONFIG_FILE) for folder in folders)
        path = next(filter(files.exists, paths), None)
        if path is None:
            return None
        config = AlbertConfig.from_json(path)
        queries = (k for name, k in self._keys.items() if name.endswith("/self/query/kernel"))
        for shape in map(self._stored.get, queries):
            # Model Garden's kernels are [H, heads, size].
            if len(shape) == 3 and shape[1] != config.num_attention_heads:
                raise AlbertError(
                    f"{path} says num_attention_heads={config.num_attention_heads}, but the "
                    f"model has {shape[1]}."
                )
        return config


def _official_name(name: str) -> str:
    """Returns the official name of a TF Model Garden variable; other names unchanged."""
    if name.startswith("bert/cls/"):  # Its pretraining model puts a scope around its head.
        name = name.removeprefix("bert/")
    module, _, variable = name.rpartition("/")
    if module in _MODEL_GARDEN:
        return f"{_MODEL_GARDEN[module]}/{variable}"
    return _MODEL_GARDEN.get(name, name)


def _without_heads(name: str, shape: list[int]) -> list[int]:
    """Returns the official shape of a weight, which may have Model Garden's axis for the heads.

    All kernels of the attention are [H, H]; with that axis they have three.
    """
    if "/attention_1/" not in name or len(shape) != (2 if name.endswith("/bias") else 3):
        return shape
    size = math.prod(shape)
    return [size] if name.endswith("/bias") else [math.isqrt(size)] * 2
