# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""FineTuneConfig: the settings of fine-tuning, from a recipe and what overrides it.

A recipe, `albert_tf/configs/recipes/<task>.json`, holds a `source`, the settings of the `base`
model and those that differ for other sizes (`small`, `large`, `xlarge`, `xxlarge`). `v2` holds the
settings that differ for models without dropout, of any size.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined
from albert_tf.settings import ABOVE_0, check_integer, setting, with_default
from albert_tf.training.specs import RunConfig

#: Steps if neither the recipe nor a setting says how long to train.
_DEFAULT_STEPS = 1000
#: The folder of the recipes.
RECIPES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "configs", "recipes")
#: The sizes of recipes with their smallest hidden size.
_SIZES = (("xxlarge", 4096), ("xlarge", 2048), ("large", 1024), ("base", 768), ("small", 0))
#: Settings that exclude each other.
_DURATION = ("train_step", "num_train_epochs")
_WARM_UP = ("warmup_step", "warmup_proportion")
_RECIPE = "Default: the task's recipe."


@dataclasses.dataclass(frozen=True)
class FineTuneConfig(RunConfig):
    """How to fine-tune on a task: a RunConfig whose length may depend on the data.

    Raises:
      AlbertError: a value is impossible, or does not fit another one.

    Example:
      config = FineTuneConfig.from_recipe("sst-2", model, output_dir="runs/sst-2", num_seeds=5)
    """

    train_batch_size: int = with_default(RunConfig, "train_batch_size", 32, _RECIPE)
    learning_rate: float = with_default(RunConfig, "learning_rate", 5e-5, _RECIPE)
    num_warmup_steps: int = with_default(RunConfig, "num_warmup_steps", 0)
    optimizer: str = with_default(RunConfig, "optimizer", "adamw")
    precision: str = with_default(RunConfig, "precision", "auto")
    save_checkpoints_steps: int = with_default(RunConfig, "save_checkpoints_steps", 1000)
    train_step: int | None = setting(
        None, f"Training steps. {_RECIPE}", minimum=1, needs="do_train"
    )
    num_train_epochs: float | None = setting(
        None,
        "Passes over the training examples, instead of train_step.",
        minimum=ABOVE_0,
        needs="do_train",
    )
    warmup_step: int | None = setting(
        None,
        "Steps of linear warm-up. Default: the task's recipe, in proportion to the steps; without "
        "one, a tenth of them. Larger models often do not learn without warm-up.",
        needs="do_train",
    )
    warmup_proportion: float = setting(0.1, "Warm-up as a share of all steps.", flag=None)
    eval_every_steps: int | None = setting(
        None,
        f"Steps between evaluations during training, which select the best weights. {_RECIPE}",
        minimum=1,
        needs="do_eval",
    )
    max_seq_length: int = setting(
        512,
        "Maximum sequence length in tokens; longer ones are truncated. Default: the task's recipe, "
        "or the maximum of the model.",
        minimum=1,
    )
    dropout: float | None = setting(
        None,
        "Dropout of hidden layers and attention. Default: the task's recipe, or the model's "
        "configuration; none for models that were pretrained without dropout.",
        maximum=0.99,
        needs="do_train",
    )
    classifier_dropout: float = setting(
        0.1, "Dropout on the input of the task's head.", maximum=0.99, flag=None
    )
    num_seeds: int = setting(
        1,
        "Train this number of times, with consecutive seeds, in folders seed-<n>; print the "
        "median, best and range of results, and use the best run.",
        minimum=1,
        needs="do_train",
    )

    def __post_init__(self) -> None:
        """Checks the values."""
        super().__post_init__()
        if self.freeze and not self.init_checkpoint:
            raise AlbertError(
                f"`freeze`={self.freeze} keeps weights as they are in `init_checkpoint`; "
                "without one they would stay random."
            )

    @classmethod
    def from_recipe(cls, task_name: str, model: AlbertConfig, **settings: Any) -> FineTuneConfig:
        """Combines the recipe for a task and a model with settings that override it.

        If `settings` change the number of steps, the warm-up keeps its share of them.

        Args:
          task_name: of the recipe, `albert_tf/configs/recipes/<task_name>.json`.
          model: configuration of the model.
          **settings: fields of FineTuneConfig; `output_dir` is required.

        Raises:
          AlbertError: there is no such recipe; a setting is unknown or impossible; both
            `train_step` and `num_train_epochs`, or both `warmup_step` and `warmup_proportion`, are
            given.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(settings.keys() - known):
            raise AlbertError(f"There are unknown settings: {joined(unknown, 80)}.")
        given = {name for name, value in settings.items() if value is not None}
        for first, second in (_DURATION, _WARM_UP):
            if {first, second} <= given:
                raise AlbertError(f"Give `{first}` or `{second}`, not both.")
        recipe = load_recipe(task_name, model)
        if not given.isdisjoint(_DURATION):
            recipe = {name: value for name, value in recipe.items() if name not in _DURATION}
        longest = min(
            recipe.get("max_seq_length", cls.max_seq_length), model.max_position_embeddings
        )
        return cls(**{"output_dir": "", **recipe, "max_seq_length": longest, **settings})

    def steps(self, num_examples: int) -> int:
        """Returns the number of training steps; raises AlbertError if there are too many."""
        if self.num_train_epochs is None:
            return self.train_step or _DEFAULT_STEPS
        steps = max(1, math.ceil(self.num_train_epochs * num_examples / self.train_batch_size))
        check_integer("`max_steps`", steps)
        return steps

    def training_run(self, steps: int) -> FineTuneConfig:
        """Returns the settings for a number of steps, with their warm-up."""
        share = round(self.warmup_proportion * steps)
        warmup = share if self.warmup_step is None else self.warmup_step
        return dataclasses.replace(self, num_warmup_steps=warmup)


def load_recipe(task_name: str, config: AlbertConfig) -> dict[str, Any]:
    """Returns the settings for a task and a model, with the warm-up as a share of the steps.

    Models pretrained without dropout, such as the v2 releases, are fine-tuned without it.

    Raises:
      AlbertError: there is no recipe for the task.
    """
    path = os.path.join(RECIPES, f"{task_name}.json")
    if not os.path.exists(path):
        raise AlbertError(f"There is no recipe for the task {task_name!r} ({path}).")
    # The recipes are part of the package, so on the local file system.
    with open(path, encoding="utf-8") as f:
        recipe = json.load(f)
    size = next(name for name, hidden_size in _SIZES if config.hidden_size >= hidden_size)
    settings = {**recipe["base"], **recipe.get(size, {})}
    if config.hidden_dropout_prob == 0:
        settings["dropout"] = 0.0
        if size != "small":  # There is no v2 release of that size.
            settings.update(recipe.get("v2", {}))
    if "warmup_step" in settings:
        settings["warmup_proportion"] = settings.pop("warmup_step") / settings["train_step"]
    return settings
