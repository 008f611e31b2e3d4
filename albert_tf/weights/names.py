# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of weights: the TF1 release's, which we use, Hugging Face's, and TF-Hub's in TF2.

The mapping is a table, not a rule: a name that it lacks is reported, never guessed.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError

_TABLES = {
    "bert/embeddings/word_embeddings": "albert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
}
#: Hugging Face's dense layer from width E to H, which it also has for E = H.
PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_DENSE = {
    "bert/encoder/embedding_hidden_mapping_in": PROJECTION,
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
}
_NORMS = {
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
}
_GROUP = "bert/encoder/transformer/group_{}/inner_group_{}"
_HUGGING_FACE_GROUP = "albert.encoder.albert_layer_groups.{}.albert_layers.{}"
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
_ONLY_BLOCK = _GROUP.format(0, 0)
#: Official names by those of TF Model Garden, which TF-Hub's TF2 encoders were made with. It has
#: neither groups nor inner groups.
_MODEL_GARDEN = {
    "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "embedding_projection": "bert/encoder/embedding_hidden_mapping_in",
    "transformer/self_attention/query": f"{_ONLY_BLOCK}/attention_1/self/query",
    "transformer/self_attention/key": f"{_ONLY_BLOCK}/attention_1/self/key",
    "transformer/self_attention/value": f"{_ONLY_BLOCK}/attention_1/self/value",
    "transformer/self_attention/attention_output": f"{_ONLY_BLOCK}/attention_1/output/dense",
    "transformer/self_attention_layer_norm": f"{_ONLY_BLOCK}/LayerNorm",
    "transformer/intermediate": f"{_ONLY_BLOCK}/ffn_1/intermediate/dense",
    "transformer/output": f"{_ONLY_BLOCK}/ffn_1/intermediate/output/dense",
    "transformer/output_layer_norm": f"{_ONLY_BLOCK}/LayerNorm_1",
    "pooler_transform": "bert/pooler/dense",
    "cls/predictions/transform/dense": "cls/predictions/transform/dense",
    "cls/predictions/transform/LayerNorm": "cls/predictions/transform/LayerNorm",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
}
#: The scope that its pretraining model puts around its head.
_MODEL_GARDEN_SCOPE = "bert/"


class HuggingFaceName(NamedTuple):
    """Hugging Face's name for a weight, and whether it stores the transpose."""

    name: str
    transposed: bool


def hugging_face_names(config: AlbertConfig) -> dict[str, HuggingFaceName]:
    """Returns Hugging Face's names of all pretraining weights, by official name.

    Args:
      config: with parameter_sharing "all"; see `shared_by_groups`.
    """
    dense, norms = dict(_DENSE), dict(_NORMS)
    if config.embedding_size == config.hidden_size:
        del dense["bert/encoder/embedding_hidden_mapping_in"]
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            ours = _GROUP.format(group, inner)
            theirs = _HUGGING_FACE_GROUP.format(group, inner)
            dense.update({f"{ours}/{k}": f"{theirs}.{v}" for k, v in _GROUP_DENSE.items()})
            norms.update({f"{ours}/{k}": f"{theirs}.{v}" for k, v in _GROUP_NORMS.items()})
    names = {ours: HuggingFaceName(theirs, False) for ours, theirs in _TABLES.items()}
    for ours, theirs in dense.items():
        names[f"{ours}/kernel"] = HuggingFaceName(f"{theirs}.weight", True)
        names[f"{ours}/bias"] = HuggingFaceName(f"{theirs}.bias", False)
    for ours, theirs in norms.items():
        names[f"{ours}/gamma"] = HuggingFaceName(f"{theirs}.weight", False)
        names[f"{ours}/beta"] = HuggingFaceName(f"{theirs}.bias", False)
    return names


def model_garden_name(name: str) -> str:
    """Returns the official name of a TF Model Garden variable; other names unchanged."""
    if name.startswith(f"{_MODEL_GARDEN_SCOPE}cls/"):
        name = name[len(_MODEL_GARDEN_SCOPE) :]
    module, _, variable = name.rpartition("/")
    if name in _MODEL_GARDEN:
        return _MODEL_GARDEN[name]
    return f"{_MODEL_GARDEN[module]}/{variable}" if module in _MODEL_GARDEN else name


def shared_by_groups(config: AlbertConfig) -> AlbertConfig:
    """Returns the configuration of the same model for code without `parameter_sharing`.

    Layers that share nothing become one group each, under the same names.

    Raises:
      AlbertError: only attention or only the feed-forward network is shared, or that code would
        assign layers to other groups.
    """
    if config.parameter_sharing == "all":
        return config
    layers = config.num_hidden_layers
    grouped = dataclasses.replace(config, parameter_sharing="all", num_hidden_groups=layers)
    same = all(grouped.attention_group(n) == n for n in range(layers))
    if config.parameter_sharing != "none" or not same:
        raise AlbertError(
            f"A model with parameter_sharing={config.parameter_sharing!r} and {layers} layers has "
            "no counterpart in the TF1 release and at Hugging Face; keep it in the format tf2."
        )
    return grouped
