# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The files with which sentence-transformers opens a model of sentence vectors.

Beside those of the encoder these are a list of modules, and the settings of the modules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from albert_tf.config import POOLINGS
from albert_tf.errors import AlbertError
from albert_tf.huggingface import MODULE_FILES, MODULES, TOKENIZER_CONFIG
from albert_tf.io import files
from albert_tf.io.json_values import joined, parse_json, short_repr

#: The modules that we have, in their order.
_KINDS = ["Transformer", "Pooling", "Normalize"]
#: The name of our task.
EMBEDDING = "embedding"
#: The settings of a pooling that is on, by ours.
_MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def write_modules(folder: str, task: Mapping[str, Any], hidden_size: int) -> None:
    """Writes the modules of a model with this task.json."""
    paths = ["", os.path.dirname(MODULE_FILES[1]), "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(_KINDS[: 2 + task["normalize"]], paths))
    ]
    files.write_json(os.path.join(folder, MODULES), modules)
    settings = (
        {"max_seq_length": task["max_seq_length"]},
        {"word_embedding_dimension": hidden_size, _MODES[task["pooling"]]: True},
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
            f"{place}: the pooling must be {' or '.join(POOLINGS)}, not {short_repr(modes)}."
        )
    # In one of these files, depending on the version.
    places = (os.path.join(folder, name) for name in (MODULE_FILES[0], TOKENIZER_CONFIG))
    options = [files.read_object(place) for place in places if files.exists(place)]
    lengths = [x.get(key) for x in options for key in ("max_seq_length", "model_max_length")]
    longest = min((x for x in lengths if isinstance(x, int)), default=512)
    return {"pooling": pooling, "normalize": kinds == _KINDS, "max_seq_length": longest}
