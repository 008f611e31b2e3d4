# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Recipes: the settings a task is fine-tuned with, by model size, as JSON files.

A file `albert_tf/configs/recipes/<task>.json` holds a `source`, the settings of the `base` model,
and for other sizes (`small`, `large`, `xlarge`, `xxlarge`) what is different there. `v2` holds what
is different for models without dropout, whatever their size.
"""

from __future__ import annotations

import json
import os
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "configs", "recipes")
#: Sizes by the smallest hidden size that belongs to them.
_SIZES = (("xxlarge", 4096), ("xlarge", 2048), ("large", 1024), ("base", 768), ("small", 0))


def model_size(config: AlbertConfig) -> str:
    """The released size that a configuration is nearest to from above; `small` below them all."""
    return next(name for name, hidden_size in _SIZES if config.hidden_size >= hidden_size)


def load_recipe(task_name: str, config: AlbertConfig) -> dict[str, Any]:
    """The settings for a task and a model, by flag name.

    Models that were pretrained without dropout, as the v2 releases were, keep going without.

    Raises:
      AlbertError: there is no recipe for the task, or it is malformed.
    """
    path = os.path.join(_FOLDER, f"{task_name}.json")
    if not os.path.exists(path):
        raise AlbertError(f"There is no recipe for the task {task_name!r} ({path}).")
    # Part of the package, hence on the local file system.
    with open(path, encoding="utf-8") as f:
        recipe = json.load(f)
    odd = sorted(set(recipe) - {"source", "v2", *(name for name, _ in _SIZES)})
    if odd or "base" not in recipe:
        raise AlbertError(f"The recipe {path} lacks 'base', or should not have {odd}.")
    size = model_size(config)
    settings = {**recipe["base"], **recipe.get(size, {})}
    if config.hidden_dropout_prob == 0:
        settings["dropout"] = 0.0
        if size != "small":  # No release is that small.
            settings.update(recipe.get("v2", {}))
    return settings
