# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags that fine-tuning runners share, and the settings they make of them and a recipe."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from albert_tf.cli.path_flags import check_vocabulary, define_path
from albert_tf.config import AlbertConfig, not_told
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained import DEFAULT, NONE, resolve_name
from albert_tf.tasks.model_folders import VOCABULARY_FLAGS, check_seeds, check_trained, model_folder
from albert_tf.tasks.recipes import load_recipe
from albert_tf.tasks.training_flags import (
    check_modes,
    check_run,
    define_training_flags,
    run_config_from_flags,
)
from albert_tf.training.specs import (
    FREEZABLE,
    MAX_SEED,
    MAX_STEPS,
    RunConfig,
    check_number,
    check_steps,
)
from albert_tf.weights.config_files import config_in

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

FLAGS = flags.FLAGS
#: Flags that only training reads, beside those of all runners.
_TRAINING_ONLY = (
    "init_checkpoint",
    "albert_config_file",
    "spm_model_file",
    "vocab_file",
    "do_lower_case",
    "learning_rate",
    "train_step",
    "num_train_epochs",
    "warmup_step",
    "dropout",
    "classifier_dropout",
    "freeze",
    "num_seeds",
)
_RECIPE = "Default: the task's recipe"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a task is fine-tuned: a recipe, overridden by the flags that were given.

    Attributes:
      learning_rate: peak learning rate.
      train_batch_size: examples of a step.
      train_step: steps; None: as `num_train_epochs` says.
      num_train_epochs: passes over the training examples; None: as `train_step` says.
      warmup_step: steps of warm-up; None: as `warmup_proportion` says.
      warmup_proportion: warm-up as a share of all steps.
      eval_every_steps: steps between two evaluations; None: one at the end.
      max_seq_length: of the longest sequences.
      dropout: of the hidden layers and of attention; None: the configuration's own.
      classifier_dropout: on what the task's head reads.
    """

    learning_rate: float = 5e-5
    train_batch_size: int = 32
    train_step: int | None = None
    num_train_epochs: float | None = None
    warmup_step: int | None = None
    warmup_proportion: float = 0.1
    eval_every_steps: int | None = None
    max_seq_length: int = 512
    dropout: float | None = None
    classifier_dropout: float = 0.1

    def __post_init__(self) -> None:
        """Raises AlbertError for a number of epochs in which nothing would be trained."""
        if self.num_train_epochs is not None:
            check_number("--num_train_epochs", self.num_train_epochs, positive=True)

    def steps(self, num_examples: int) -> int:
        """Training steps for so many examples.

        Raises:
          AlbertError: they are too many.
        """
        if self.num_train_epochs is None:
            return self.train_step
        steps = max(1, math.ceil(self.num_train_epochs * num_examples / self.train_batch_size))
        check_steps(steps)
        return steps

    def model_config(self, config: AlbertConfig) -> AlbertConfig:
        """The configuration with the dropout of these settings."""
        if self.dropout is None:
            return config
        return dataclasses.replace(
            config,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
        )

    def sequence_length(self, config: AlbertConfig) -> int:
        """`max_seq_length`, or what the model can read if that is less and was not asked for."""
        if FLAGS["max_seq_length"].present:
            return self.max_seq_length
        return min(self.max_seq_length, config.max_position_embeddings)

    def run_config(self, steps: int) -> RunConfig:
        """The RunConfig of the flags with these settings, for so many steps."""
        warmup = self.warmup_step
        if warmup is None:
            warmup = int(self.warmup_proportion * steps)
        initial = DEFAULT if starts_from_default() else FLAGS.init_checkpoint
        if FLAGS.freeze and FLAGS.do_train and initial in (None, "", NONE):
            raise AlbertError(
                f"--freeze={FLAGS.freeze} keeps weights as they are in --init_checkpoint; without "
                "one they would stay random."
            )
        if FLAGS.random_seed + FLAGS.num_seeds - 1 > MAX_SEED:
            raise AlbertError(
                f"The last of {FLAGS.num_seeds} seeds from --random_seed={FLAGS.random_seed} on is "
                f"larger than {MAX_SEED}."
            )
        return run_config_from_flags(
            learning_rate=self.learning_rate,
            train_batch_size=self.train_batch_size,
            num_warmup_steps=warmup,
            init_checkpoint=initial,
        )


def define_finetuning_flags() -> None:
    """Defines the flags that all fine-tuning runners have; importable without TensorFlow."""
    define_training_flags(
        train_batch_size=32,
        eval_batch_size=64,
        optimizer="adamw",
        save_checkpoints_steps=1000,
        without_init=f"Default: {DEFAULT}, if no other configuration or vocabulary is given; else "
        f"{NONE}.",
    )
    FLAGS.set_default("do_train", False)  # As in the release.
    FLAGS.set_default("precision", "auto")
    flags.DEFINE_bool("do_predict", False, "Predict; works alone from a trained --output_dir.")
    beside = f"Default: that of --init_checkpoint; with {NONE}, of {DEFAULT}."
    define_path(
        "albert_config_file",
        None,
        f"JSON file or preset's name. {beside}",
        check=AlbertConfig.load,
        when=lambda: FLAGS.do_train,
    )
    define_path(
        "spm_model_file",
        None,
        f"SentencePiece model. {beside}",
        check=check_vocabulary,
        when=lambda: FLAGS.do_train,
    )
    define_path(
        "vocab_file",
        None,
        f"WordPiece vocabulary, or tokenizer.json. {beside}",
        check=check_vocabulary,
        when=lambda: FLAGS.do_train,
    )
    flags.DEFINE_bool("do_lower_case", None, "Lower-case. Default: as tokenizer.json says, or yes.")
    flags.DEFINE_integer(
        "max_seq_length", None, "Tokens of the longest sequences; longer ones are cut. "
        f"{_RECIPE}, or what the model can read.", 1
    )  # fmt: skip
    flags.DEFINE_bool(
        "pad_to_max", False, "Pad every batch to --max_seq_length, instead of to the longest of "
        "its own, similar sequences. For TPUs, where it is the default."
    )  # fmt: skip
    define_path(
        "cached_dir",
        None,
        "Tokenized data. Default: cache in --output_dir.",
        check=files.check_output_folder,
    )
    flags.DEFINE_float("learning_rate", None, f"Peak learning rate. {_RECIPE}.", 0.0)
    flags.DEFINE_integer("train_step", None, f"Steps to train. {_RECIPE}.", 1, MAX_STEPS)
    flags.DEFINE_float("num_train_epochs", None, "Passes over the training examples, instead.", 0.0)
    flags.DEFINE_integer(
        "warmup_step", None, f"Steps of linear warm-up. {_RECIPE}, in proportion to the steps; a "
        "tenth of them without one. Larger models often do not learn without.", 0
    )  # fmt: skip
    flags.DEFINE_integer(
        "eval_every_steps", None, "Evaluate every so many steps, too, and keep the best weights. "
        f"{_RECIPE}.", 1
    )  # fmt: skip
    flags.DEFINE_float(
        "dropout", None, f"Dropout of hidden layers and attention. {_RECIPE}, or the model's own; "
        "none for models that were trained without.", 0.0, 1.0
    )  # fmt: skip
    flags.DEFINE_float(
        "classifier_dropout", None, f"Dropout on what the task's head reads. {_RECIPE}, or 0.1.",
        0.0, 1.0
    )  # fmt: skip
    flags.DEFINE_enum(
        "freeze", None, FREEZABLE, "What is not trained and stays as it is in --init_checkpoint. "
        "embeddings: those of pieces, segments and positions. encoder: everything but the task's "
        "head, which is faster, needs less memory and wants a higher --learning_rate. Default: all "
        "is trained."
    )  # fmt: skip
    flags.DEFINE_integer(
        "num_seeds", 1, "Train so many times, from --random_seed on, into seed-<n> folders; show "
        "median, best and spread, and keep to the best.", 1
    )  # fmt: skip


def check_finetuning_modes(files: Mapping[str, str], training_only: Sequence[str] = ()) -> None:
    """See `check_modes`; `training_only` are those of this task alone.

    Raises:
      AlbertError: a flag that was given would be ignored.
    """
    check_modes(files, (*_TRAINING_ONLY, *training_only))
    if FLAGS.do_train:
        check_seeds(FLAGS.num_seeds, FLAGS.do_eval)


def starts_from_default() -> bool:
    """Whether a model is to be trained of which no flag tells anything: then it is the default."""
    told = ("init_checkpoint", "albert_config_file", "spm_model_file", "vocab_file")
    return FLAGS.do_train and not any(FLAGS[name].value for name in told)


def open_model_files() -> tuple[AlbertConfig, Tokenizer]:
    """Configuration and tokenizer of the model to train; see `finetuning.load_model_files`."""
    from albert_tf.tasks.base import load_model_files

    config_file, vocabulary = FLAGS.albert_config_file, FLAGS.spm_model_file or FLAGS.vocab_file
    checkpoint = FLAGS.init_checkpoint or None
    if starts_from_default():
        print(
            f"Without --init_checkpoint, the bundled {DEFAULT} is trained; --init_checkpoint={NONE}"
            " starts from random weights."
        )
        checkpoint = DEFAULT
    elif checkpoint == NONE:
        checkpoint = None if config_file or vocabulary else DEFAULT
    return load_model_files(config_file, vocabulary, FLAGS.do_lower_case, checkpoint)


def settings_from_flags(recipe: Mapping[str, Any]) -> Settings:
    """A recipe, overridden by the flags that were given.

    Without `train_step` and `num_train_epochs` in either, it is 1000 steps.

    Raises:
      AlbertError: both were given, or the recipe holds an unknown setting.
    """
    names = [field.name for field in dataclasses.fields(Settings)]
    odd = sorted(set(recipe) - set(names))
    if odd:
        raise AlbertError(f"The recipe has unknown settings: {', '.join(odd)}.")
    given = {name: FLAGS[name].value for name in names if name in FLAGS and FLAGS[name].present}
    duration = {"train_step", "num_train_epochs"}
    if duration <= set(given):
        raise AlbertError("Give --train_step or --num_train_epochs, not both.")
    values = dict(recipe)
    if duration & set(given):
        # The recipe's warm-up is meant for its own number of steps.
        warmup, steps = values.pop("warmup_step", None), values.get("train_step")
        if warmup is not None and steps:
            values["warmup_proportion"] = warmup / steps
        for name in duration:
            values.pop(name, None)
    values.update(given)
    if values.get("train_step") is None and values.get("num_train_epochs") is None:
        values["train_step"] = 1000
    return Settings(**values)


def check_settings(recipe: str | None) -> None:
    """Checks what can be told of a run without TensorFlow.

    Args:
      recipe: of the task; None if there are several.

    Raises:
      AlbertError: the settings are impossible, or --output_dir holds no model to go on with.
    """
    if not FLAGS.do_train:
        run = settings_from_flags({}).run_config(0)
        check_run(run)
        if recipe and files.is_local(run.output_dir):
            check_trained(model_folder(run.output_dir))
        return
    if FLAGS.init_checkpoint in (None, "", NONE):
        vocabulary = FLAGS.spm_model_file or FLAGS.vocab_file
        if vocabulary and not FLAGS.albert_config_file:
            raise not_told("--albert_config_file")
        if FLAGS.albert_config_file and not vocabulary:
            raise not_told(VOCABULARY_FLAGS)
    config = _config_at_hand()
    known = config is not None and recipe is not None
    settings = settings_from_flags(load_recipe(recipe, config) if known else {})
    run = settings.run_config(0)
    check_run(run, batch_size_known=known or FLAGS["train_batch_size"].present)
    if config:
        config.check_length(settings.sequence_length(config))


def _config_at_hand() -> AlbertConfig | None:
    """The configuration of the model to train, if it is a local file."""
    path = FLAGS.albert_config_file
    if path:
        return AlbertConfig.load(path) if files.is_local(path) else None
    path = FLAGS.init_checkpoint or DEFAULT
    path = resolve_name(DEFAULT if path == NONE else path)
    return config_in(path) if files.is_local(path) else None


def cache_dir() -> str:
    """Where tokenized data is kept."""
    return FLAGS.cached_dir or os.path.join(FLAGS.output_dir, "cache")


def pads_to_max() -> bool:
    """Whether all batches have the same length."""
    return FLAGS.pad_to_max or FLAGS.use_tpu or FLAGS.strategy == "tpu"
