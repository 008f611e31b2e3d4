# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""FineTuneConfig: the settings of fine-tuning, from a recipe and what overrides it.

A recipe, `albert_tf/configs/recipes/<task>.json`, holds a `source`, the settings of the `base`
model and those that differ for other sizes (`small`, `large`, `xlarge`, `xxlarge`). `v2` holds the
settings that differ for models without dropout, of any size. `benchmark` holds those for a data set
of about so many `examples` only; others find the length of their training in `for_data`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.settings import (
    ABOVE_0,
    check_integer,
    check_names,
    count_setting,
    field_names,
    setting,
    training_setting,
    with_default,
)
from albert_tf.training.specs import RunConfig

#: If neither the recipe nor a setting says how long to train: passes over the data; or, for small
#: data sets, so many steps, but no more than so many passes. Then the number of evaluations.
_PASSES, _FEW_STEPS, _MOST_PASSES, _EVALUATIONS = 3, 500, 20, 10
_LENGTH = (
    f"Default: the task's recipe, on its benchmark; otherwise {_PASSES} passes, but at least "
    f"{_FEW_STEPS} steps or {_MOST_PASSES} passes, whichever is less."
)
#: The folder of the recipes, which are part of the package, so on the local file system.
RECIPES = pathlib.Path(__file__).parents[1] / "configs/recipes"
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
    train_step: int | None = training_setting(None, f"Training steps. {_LENGTH}", minimum=1)
    num_train_epochs: float | None = training_setting(
        None,
        "Passes over the training examples, instead of train_step.",
        minimum=ABOVE_0,
    )
    warmup_step: int | None = training_setting(
        None,
        "Steps of linear warm-up. Default: the task's recipe, in proportion to the steps; without "
        "one, a tenth of them. Larger models often do not learn without warm-up.",
    )
    warmup_proportion: float = setting(0.1, "Warm-up as a share of all steps.", flag=None)
    eval_every_steps: int | None = count_setting(
        None,
        "Steps between evaluations during training, which select the best weights. Default: the "
        f"task's recipe, or a number that makes {_EVALUATIONS} evaluations.",
        needs="do_eval",
    )
    max_seq_length: int = count_setting(
        512,
        "Maximum sequence length in tokens; longer ones are truncated. Default: the task's recipe, "
        "or the maximum of the model.",
    )
    dropout: float | None = training_setting(
        None,
        "Dropout of hidden layers and attention. Default: the task's recipe, or the model's "
        "configuration; none for models that were pretrained without dropout.",
        maximum=0.99,
    )
    classifier_dropout: float = training_setting(
        0.1,
        "Dropout on the input of the task's head.",
        maximum=0.99,
        source="Lan et al., 2020, Table 14",
    )
    num_seeds: int = training_setting(
        1,
        "Train this number of times, with consecutive seeds, in folders seed-<n>; print the "
        "median, best and range of results, and use the best run.",
        minimum=1,
    )
    #: Of the recipe: settings for a training set of about so many `examples`.
    benchmark: Mapping[str, Any] | None = None

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
        check_names(settings, field_names(cls))
        given = {name: value for name, value in settings.items() if value is not None}
        for first, second in (_DURATION, _WARM_UP):
            if {first, second} <= given.keys():
                raise AlbertError(f"Give `{first}` or `{second}`, not both.")
        recipe = load_recipe(task_name, model)
        overridden = {*given, *(_DURATION if {*_DURATION} & given.keys() else ())}
        left = {name: value for name, value in recipe.items() if name not in overridden}
        if of_benchmark := recipe.get("benchmark"):
            left["benchmark"] = {k: v for k, v in of_benchmark.items() if k not in overridden}
        longest = min(
            recipe.get("max_seq_length", cls.max_seq_length), model.max_position_embeddings
        )
        return cls(**{"output_dir": "", **left, "max_seq_length": longest, **given})

    def for_data(self, examples: int, sequences: int) -> FineTuneConfig:
        """Returns the settings with the steps, warm-up and evaluations for a training set.

        Args:
          examples: their number, to compare with that of the recipe's benchmark.
          sequences: the number of rows in a pass, such as the windows of SQuAD's contexts.

        Raises:
          AlbertError: there are too many steps.
        """
        meant = dict(self.benchmark or {"examples": 0})
        is_benchmark = abs(examples - meant.pop("examples")) <= examples / 10
        run = dataclasses.replace(self, benchmark=None, **(meant if is_benchmark else {}))

        def steps_of(passes) -> int:
            return max(1, math.ceil(passes * sequences / run.train_batch_size))

        steps = run.train_step or max(steps_of(_PASSES), min(_FEW_STEPS, steps_of(_MOST_PASSES)))
        if run.num_train_epochs is not None:
            steps = steps_of(run.num_train_epochs)
        check_integer("`max_steps`", steps)
        every, warmup = run.eval_every_steps, run.warmup_step
        return dataclasses.replace(
            run,
            train_step=steps,
            num_train_epochs=None,
            num_warmup_steps=round(run.warmup_proportion * steps) if warmup is None else warmup,
            eval_every_steps=every if is_benchmark else every or math.ceil(steps / _EVALUATIONS),
        )


def load_recipe(task_name: str, config: AlbertConfig) -> dict[str, Any]:
    """Returns the settings for a task and a model, with the warm-up as a share of the steps.

    Models pretrained without dropout, such as the v2 releases, are fine-tuned without it.

    Raises:
      AlbertError: there is no recipe for the task.
    """
    path = RECIPES / f"{task_name}.json"
    if not path.exists():
        raise AlbertError(f"There is no recipe for the task {task_name!r} ({path}).")
    recipe = json.loads(path.read_text("utf-8"))
    size = next(name for name, hidden_size in _SIZES if config.hidden_size >= hidden_size)
    settings = {**recipe["base"], **recipe.get(size, {})}
    if config.hidden_dropout_prob == 0:
        settings["dropout"] = recipe.get("least_dropout", 0.0)
        if size != "small":  # There is no v2 release of that size.
            settings.update(recipe.get("v2", {}))
    if "warmup_step" in settings:
        steps = {**settings, **settings.get("benchmark", {})}["train_step"]
        settings["warmup_proportion"] = settings.pop("warmup_step") / steps
    return settings
