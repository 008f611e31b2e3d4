# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""FineTuneConfig: the settings of fine-tuning, from a recipe and what overrides it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined
from albert_tf.tasks.recipes import load_recipe
from albert_tf.training.specs import (
    MAX_SEED,
    RunConfig,
    check_integer,
    check_number,
)

#: Steps if neither the recipe nor a setting says how long to train.
DEFAULT_STEPS = 1000
#: Settings that exclude each other.
_DURATION = ("train_step", "num_train_epochs")
_WARM_UP = ("warmup_step", "warmup_proportion")
#: Fields that are integers, and the smallest value of each.
_INTEGERS = {
    "train_step": 1, "warmup_step": 0, "eval_every_steps": 1, "max_seq_length": 1, "num_seeds": 1
}  # fmt: skip
#: Defaults of RunConfig's fields for fine-tuning, where they differ from those for pretraining.
_RUN_DEFAULTS = {
    "output_dir": "",
    "num_warmup_steps": 0,
    "train_batch_size": 32,
    "learning_rate": 5e-5,
    "optimizer": "adamw",
    "precision": "auto",
    "save_checkpoints_steps": 1000,
}


def check_seeds(num_seeds: int, evaluated: bool) -> None:
    """Raises AlbertError for several runs without an evaluation."""
    if num_seeds > 1 and not evaluated:
        raise AlbertError("`num_seeds` needs `do_eval`: the best run is chosen by evaluation.")


@dataclasses.dataclass(frozen=True)
class FineTuneConfig:
    """How to fine-tune on a task.

    Attributes:
      run: devices, optimizer, checkpoints and output directory. `training_run` sets its warm-up.
      train_step: training steps; None: see `num_train_epochs`.
      num_train_epochs: passes over the training examples; None: see `train_step`.
      warmup_step: steps of warm-up; None: see `warmup_proportion`.
      warmup_proportion: warm-up as a share of all steps.
      eval_every_steps: steps between two evaluations; None: one at the end.
      max_seq_length: the maximum length of a sequence in tokens.
      dropout: of hidden layers and attention; None: that of the model's configuration.
      classifier_dropout: on the input of the task's head.
      num_seeds: the number of runs, with consecutive seeds from `run.seed`; the best one is used.
      pad_to_max: pad all batches to `max_seq_length`.

    Raises:
      AlbertError: a value is impossible.

    Example:
      config = FineTuneConfig.from_recipe("sst-2", model, output_dir="runs/sst-2", num_seeds=5)
    """

    run: RunConfig
    train_step: int | None = None
    num_train_epochs: float | None = None
    warmup_step: int | None = None
    warmup_proportion: float = 0.1
    eval_every_steps: int | None = None
    max_seq_length: int = 512
    dropout: float | None = None
    classifier_dropout: float = 0.1
    num_seeds: int = 1
    pad_to_max: bool = False

    def __post_init__(self) -> None:
        """Checks the values."""
        if self.num_train_epochs is not None:
            check_number("`num_train_epochs`", self.num_train_epochs, positive=True)
        for name, least in _INTEGERS.items():
            if (value := getattr(self, name)) is not None:
                check_integer(f"`{name}`", value, least)
        check_number("`warmup_proportion`", self.warmup_proportion)
        check_number("`classifier_dropout`", self.classifier_dropout)
        if self.classifier_dropout >= 1:
            raise AlbertError(f"`classifier_dropout`={self.classifier_dropout} must be below 1.")
        if self.run.freeze and not self.run.init_checkpoint:
            raise AlbertError(
                f"`freeze`={self.run.freeze} keeps weights as they are in `init_checkpoint`; "
                "without one they would stay random."
            )
        if self.run.seed + self.num_seeds - 1 > MAX_SEED:
            raise AlbertError(
                f"With `num_seeds`={self.num_seeds} and `seed`={self.run.seed}, the last seed is "
                f"larger than {MAX_SEED}; give a smaller `seed`."
            )

    @classmethod
    def from_recipe(
        cls, task_name: str | None, model: AlbertConfig | None = None, **settings: Any
    ) -> FineTuneConfig:
        """Combines the recipe for a task and a model with settings that override it.

        If `settings` change the number of steps, the warm-up keeps its share of them.

        Args:
          task_name: of the recipe, `albert_tf/configs/recipes/<task_name>.json`; None for none.
          model: configuration of the model; it may be None without a recipe.
          **settings: fields of FineTuneConfig and RunConfig; `output_dir` is required.

        Raises:
          AlbertError: there is no such recipe; a setting is unknown or impossible; both
            `train_step` and `num_train_epochs`, or both `warmup_step` and `warmup_proportion`, are
            given.
        """
        recipe = load_recipe(task_name, model) if task_name else {}
        return cls(**_merged(recipe, model, settings))

    @property
    def output_dir(self) -> str:
        """The folder of the model and all results."""
        return self.run.output_dir

    def steps(self, num_examples: int) -> int:
        """Returns the number of training steps for a number of examples.

        Raises:
          AlbertError: there are too many steps.
        """
        if self.num_train_epochs is None:
            return self.train_step or DEFAULT_STEPS
        steps = max(1, math.ceil(self.num_train_epochs * num_examples / self.run.train_batch_size))
        check_integer("`max_steps`", steps)
        return steps

    def training_run(self, steps: int) -> RunConfig:
        """Returns the RunConfig for a number of steps, with their warm-up."""
        warmup = self.warmup_step
        if warmup is None:
            warmup = int(self.warmup_proportion * steps)
        return dataclasses.replace(self.run, num_warmup_steps=warmup)

    def model_config(self, model: AlbertConfig) -> AlbertConfig:
        """Returns a model's configuration with `dropout`, if that is set."""
        if self.dropout is None:
            return model
        return dataclasses.replace(
            model, hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout
        )


def _merged(
    recipe: dict[str, Any], model: AlbertConfig | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of FineTuneConfig; `settings` override the recipe."""
    own = {field.name for field in dataclasses.fields(FineTuneConfig)} - {"run"}
    of_run = {field.name for field in dataclasses.fields(RunConfig)}
    for values, where in ((recipe, "The recipe has unknown"), (settings, "There are unknown")):
        if odd := sorted(set(values) - own - of_run):
            raise AlbertError(f"{where} settings: {joined(odd, 80)}.")
    given = {name for name, value in settings.items() if value is not None}
    for first, second in (_DURATION, _WARM_UP):
        if {first, second} <= given:
            raise AlbertError(f"Give `{first}` or `{second}`, not both.")
    values = dict(recipe)
    if not given.isdisjoint(_DURATION):
        # The warm-up of the recipe is for its own number of steps.
        warmup, steps = values.pop("warmup_step", None), values.get("train_step")
        if warmup is not None and steps:
            values["warmup_proportion"] = warmup / steps
        for name in _DURATION:
            values.pop(name, None)
    if not given.isdisjoint(_WARM_UP):
        for name in _WARM_UP:
            values.pop(name, None)
    values.update(settings)
    if model and "max_seq_length" not in settings:
        longest = values.get("max_seq_length", FineTuneConfig.max_seq_length)
        values["max_seq_length"] = min(longest, model.max_position_embeddings)
    run = {name: value for name, value in values.items() if name in of_run}
    return {
        "run": RunConfig(**{**_RUN_DEFAULTS, **run}),
        **{name: value for name, value in values.items() if name in own},
    }
