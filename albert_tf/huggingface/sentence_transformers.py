# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The files with which sentence-transformers opens a model of sentence vectors.

Beside those of the encoder these are a list of modules, and the settings of the modules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.huggingface import CONFIG, MODULE_FILES, MODULES, TOKENIZER_CONFIG, WEIGHTS
from albert_tf.io import files
from albert_tf.io.json_values import joined, parse_json, short_repr

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

#: The modules of a model, in their order; the last one may be missing.
_KINDS = ["Transformer", "Pooling", "Normalize"]
#: Our name for a pooling that they have not, and the modules before a mean that compute it.
_SIF, _WEIGHTS = "sif", ["WeightedLayerPooling", "WordWeights"]
#: The name of our task.
EMBEDDING = "embedding"
#: The settings of a pooling that is on, by ours.
_MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def write_modules(
    folder: str, task: Mapping[str, Any], config: AlbertConfig, tokenizer: Tokenizer
) -> None:
    """Writes the modules of a model with this task.json."""
    kinds, pooling = _KINDS[: 2 + task["normalize"]], task["pooling"]
    if pooling == _SIF:
        import numpy as np  # --help should not wait for it.
        from safetensors.numpy import save

        kinds[1:1] = _WEIGHTS
        # Entry 0 is that of the embeddings. The first and the last layer may be the same.
        layers = np.zeros(config.num_hidden_layers + 1, np.float32)
        layers[1] += 1
        layers[-1] += 1
        weights = dict(zip(tokenizer.pieces, tokenizer.piece_weights().tolist()))
        values = (
            {
                "word_embedding_dimension": config.hidden_size,
                "layer_start": 0,
                "num_hidden_layers": config.num_hidden_layers,
            },
            {"vocab": tokenizer.pieces, "word_weights": weights, "unknown_word_weight": 1.0},
        )
        for kind, content in zip(_WEIGHTS, values):
            files.write_json(os.path.join(folder, kind, CONFIG), content)
        data = save({"layer_weights": layers}, metadata={"format": "pt"})
        files.write_bytes(os.path.join(folder, _WEIGHTS[0], WEIGHTS), data)
        pooling = "mean"
    paths = {"Transformer": "", "Pooling": os.path.dirname(MODULE_FILES[1])}
    modules = [
        {
            "idx": i,
            "name": f"{_SIF if kind in _WEIGHTS else ''}{i}",
            "path": paths.get(kind, kind),
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    files.write_json(os.path.join(folder, MODULES), modules)
    settings = (
        {"max_seq_length": task["max_seq_length"]},
        {"word_embedding_dimension": config.hidden_size, _MODES[pooling]: True},
    )
    for name, values in zip(MODULE_FILES, settings):
        files.write_json(os.path.join(folder, name), values)


def read_modules(folder: str) -> dict[str, Any]:
    """Returns what task.json has of a model with modules: a transformer, a pooling, perhaps a norm.

    Raises:
      AlbertError: it has others, or a pooling that we do not have.
    """
    path = os.path.join(folder, MODULES)
    modules = parse_json(files.read_text(path, "list of modules"), path)
    try:
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        places = [module["path"] for module in modules]
    except (TypeError, KeyError, AttributeError) as error:
        raise AlbertError(f"{path} is no list of modules; get the model again.") from error
    is_sif = kinds[1:3] == _WEIGHTS and modules[1].get("name") == f"{_SIF}1"
    if is_sif:
        del kinds[1:3]
    if kinds not in (_KINDS[:2], _KINDS) or places[0]:
        raise AlbertError(
            f"{path}: only an encoder in the same folder with a pooling, and perhaps a "
            f"normalization, can be loaded, not {joined(kinds)}."
        )
    place = os.path.join(folder, MODULE_FILES[1])
    settings = files.read_object(place)
    # Before version 6, each mode had a switch.
    modes = {
        name for name, on in settings.items() if name.startswith("pooling_mode") and on is True
    }
    modes |= {settings.get("pooling_mode")} - {None}
    pooling = next((ours for ours, theirs in _MODES.items() if modes <= {ours, theirs}), None)
    if not modes or pooling is None:
        raise AlbertError(
            f"{place}: the pooling must be {' or '.join(_MODES)}, not {short_repr(modes)}."
        )
    # In one of these files, depending on the version.
    places = (os.path.join(folder, name) for name in (MODULE_FILES[0], TOKENIZER_CONFIG))
    options = [files.read_object(place) for place in places if files.exists(place)]
    lengths = [x.get(key) for x in options for key in ("max_seq_length", "model_max_length")]
    longest = min((x for x in lengths if isinstance(x, int)), default=512)
    pooling = _SIF if is_sif else pooling
    return {"pooling": pooling, "normalize": kinds == _KINDS, "max_seq_length": longest}
