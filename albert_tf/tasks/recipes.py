# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Recipes: the settings for fine-tuning on a task, by model size, as JSON files.

A file `albert_tf/configs/recipes/<task>.json` holds a `source`, the settings of the `base` model
and the settings that differ for other sizes (`small`, `large`, `xlarge`, `xxlarge`). `v2` holds the
settings that differ for models without dropout, of any size.
"""

from __future__ import annotations

import json
import os
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "configs", "recipes")
#: Sizes with their smallest hidden size.
_SIZES = (("xxlarge", 4096), ("xlarge", 2048), ("large", 1024), ("base", 768), ("small", 0))


def model_size(config: AlbertConfig) -> str:
    """Returns the largest released size not wider than the model; `small` below all of them."""
    return next(name for name, hidden_size in _SIZES if config.hidden_size >= hidden_size)


def recipe_file(task_name: str) -> str:
    """Returns the path of the recipe for a task, on the local file system."""
    return os.path.join(_FOLDER, f"{task_name}.json")


def load_recipe(task_name: str, config: AlbertConfig) -> dict[str, Any]:
    """Returns the settings for a task and a model.

    Models pretrained without dropout, such as the v2 releases, are fine-tuned without it.

    Raises:
      AlbertError: there is no recipe for the task, or it is malformed.
    """
    path = recipe_file(task_name)
    if not os.path.exists(path):
        raise AlbertError(f"There is no recipe for the task {task_name!r} ({path}).")
    # The recipes are part of the package, so on the local file system.
    with open(path, encoding="utf-8") as f:
        recipe = json.load(f)
    odd = sorted(set(recipe) - {"source", "v2", *(name for name, _ in _SIZES)})
    if odd or "base" not in recipe:
        raise AlbertError(f"The recipe {path} lacks 'base', or has unknown keys: {odd}.")
    size = model_size(config)
    settings = {**recipe["base"], **recipe.get(size, {})}
    if config.hidden_dropout_prob == 0:
        settings["dropout"] = 0.0
        if size != "small":  # There is no v2 release of that size.
            settings.update(recipe.get("v2", {}))
    return settings
