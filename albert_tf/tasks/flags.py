# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of all fine-tuning runners, and the FineTuneConfig that they define."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.cli.path_flags import define_path
from albert_tf.config import AlbertConfig, missing_setting
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained import DEFAULT, NONE
from albert_tf.pretrained.locate import VOCABULARY, check_vocabulary, local_config
from albert_tf.tasks.fine_tune_config import FineTuneConfig, check_seeds
from albert_tf.tasks.training_flags import (
    check_modes,
    check_run,
    define_training_flags,
    run_settings,
)
from albert_tf.training.specs import FREEZABLE, MAX_STEPS
from albert_tf.weights.run_folder import (
    VOCABULARY_SETTINGS,
    RunFolder,
)

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

FLAGS = flags.FLAGS
#: Data flags by action flag.
FILES = {"do_train": "train_file", "do_eval": "eval_file", "do_predict": "predict_file"}
#: Flags for the model to start from. Without any of them it is the default model.
_MODEL = ("init_checkpoint", "albert_config_file", "spm_model_file", "vocab_file")
#: Flags that only training reads, besides those of all runners.
_TRAINING_ONLY = (
    *_MODEL,
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
#: RunConfig's fields with a default in the recipe.
_RECIPE_SETTINGS = ("train_batch_size", "learning_rate")
_RECIPE = "Default: the task's recipe"


def define_finetuning_flags() -> None:
    """Defines the flags of all fine-tuning runners, without importing TensorFlow."""
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
    flags.DEFINE_bool("do_predict", False, "Predict; needs only a trained --output_dir.")
    beside = f"Default: that of --init_checkpoint; with {NONE}, of {DEFAULT}."
    for name, help, check in (
        (
            "albert_config_file",
            "JSON file, or name of a preset (albert_base_v2), which is an architecture without "
            "weights.",
            AlbertConfig.load,
        ),
        ("spm_model_file", f"{VOCABULARY}.", check_vocabulary),
        ("vocab_file", "The same as --spm_model_file.", check_vocabulary),
    ):
        define_path(name, None, f"{help} {beside}", check, when=lambda: FLAGS.do_train)
    flags.DEFINE_bool(
        "do_lower_case", None, "Lower-case the text. Default: as in tokenizer.json, or true."
    )
    flags.DEFINE_integer(
        "max_seq_length", None, "Maximum sequence length in tokens; longer ones are truncated. "
        f"{_RECIPE}, or the maximum of the model.", 1
    )  # fmt: skip
    flags.DEFINE_bool(
        "pad_to_max", False, "Pad each batch to --max_seq_length, instead of to its own longest "
        "sequence. Default on TPUs: true."
    )  # fmt: skip
    flags.DEFINE_float("learning_rate", None, f"Peak learning rate. {_RECIPE}.", 0.0)
    flags.DEFINE_integer("train_step", None, f"Training steps. {_RECIPE}.", 1, MAX_STEPS)
    flags.DEFINE_float(
        "num_train_epochs", None, "Passes over the training examples, instead of --train_step.", 0.0
    )
    flags.DEFINE_integer(
        "warmup_step", None, f"Steps of linear warm-up. {_RECIPE}, in proportion to the steps; "
        "without one, a tenth of them. Larger models often do not learn without warm-up.", 0
    )  # fmt: skip
    flags.DEFINE_integer(
        "eval_every_steps", None, "Steps between evaluations during training, which select the "
        f"best weights. {_RECIPE}.", 1
    )  # fmt: skip
    flags.DEFINE_float(
        "dropout", None, f"Dropout of hidden layers and attention. {_RECIPE}, or the model's "
        "configuration; none for models that were pretrained without dropout.", 0.0, 1.0
    )  # fmt: skip
    flags.DEFINE_float(
        "classifier_dropout", None, f"Dropout on the input of the task's head. {_RECIPE}, or 0.1.",
        0.0, 1.0
    )  # fmt: skip
    flags.DEFINE_enum(
        "freeze", None, FREEZABLE, "The part of the model to freeze. embeddings: the embeddings of "
        "pieces, segments and positions. encoder: everything except the task's head; this is "
        "faster and takes less memory; use a higher --learning_rate. Default: none."
    )  # fmt: skip
    flags.DEFINE_integer(
        "num_seeds", 1, "Train this number of times, with consecutive seeds from --random_seed, in "
        "folders seed-<n>; print the median, best and range of results, and use the best run.", 1
    )  # fmt: skip


def is_requested(action: str) -> bool:
    """Returns whether an action flag was given."""
    return bool(FLAGS[action].value)


def check_requested(*others: str) -> None:
    """Raises AlbertError if there is nothing to do.

    Args:
      *others: names of flags that ask for something too, besides those of FILES.
    """
    actions = [*FILES, *others]
    if not any(map(is_requested, actions)):
        *first, last = (f"--{action}" for action in actions)
        raise AlbertError(f"There is nothing to do: give {', '.join(first)} or {last}.")


def check_files() -> None:
    """Raises AlbertError if the file of a requested action was not given."""
    for action, file in FILES.items():
        if is_requested(action) and not FLAGS[file].value:
            raise AlbertError(f"--{action} needs --{file}.")


def check_finetuning_modes() -> None:
    """Checks the mode flags of a fine-tuning runner; see `check_modes`.

    Raises:
      AlbertError: flags contradict each other.
    """
    check_modes(FILES, _TRAINING_ONLY)
    if FLAGS.do_train:
        check_seeds(FLAGS.num_seeds, FLAGS.do_eval)


def starts_from_default() -> bool:
    """Whether training starts from the default model, as no flag names another one."""
    return FLAGS.do_train and not any(FLAGS[name].value for name in _MODEL)


def open_model_files() -> tuple[AlbertConfig, Tokenizer]:
    """Loads configuration and tokenizer of the model to train; see `base.load_model_files`."""
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
    return load_model_files(checkpoint, config_file, vocabulary, FLAGS.do_lower_case)


def fine_tune_config(
    recipe: str | None, model: AlbertConfig | None = None, output_dir: str | None = None
) -> FineTuneConfig:
    """Returns the settings of a recipe, overridden by the flags that were given.

    Args:
      recipe: of the task; None for none.
      model: configuration of the model; it may be None without a recipe.
      output_dir: overrides the flag.

    Raises:
      AlbertError: see `FineTuneConfig.from_recipe`.
    """
    settings = run_settings()
    names = [field.name for field in dataclasses.fields(FineTuneConfig) if field.name in FLAGS]
    for name in {*names, *_RECIPE_SETTINGS}:
        # The defaults of these flags are in the recipe.
        settings.pop(name, None)
        if FLAGS[name].present:
            settings[name] = FLAGS[name].value
    if starts_from_default():
        settings["init_checkpoint"] = DEFAULT
    if not FLAGS.do_train:
        settings["freeze"] = settings["init_checkpoint"] = None
    if FLAGS.use_tpu or FLAGS.strategy == "tpu":
        settings["pad_to_max"] = True
    if output_dir:
        settings["output_dir"] = output_dir
    return FineTuneConfig.from_recipe(recipe, model, **settings)


def check_settings(recipe: str | None) -> FineTuneConfig | None:
    """Checks the settings of a run as far as possible without TensorFlow.

    Args:
      recipe: of the task; None if there are several.

    Returns:
      The settings; None if they depend on a configuration that TensorFlow must read.

    Raises:
      AlbertError: the settings are impossible, or there is no trained model in --output_dir.
    """
    if not FLAGS.do_train:
        config = fine_tune_config(None)
        check_run(config.run)
        if recipe and files.is_local(config.output_dir):
            RunFolder(config.output_dir).best_seed().check_model()
        return config
    if FLAGS.init_checkpoint in (None, "", NONE):
        vocabulary = FLAGS.spm_model_file or FLAGS.vocab_file
        if vocabulary and not FLAGS.albert_config_file:
            raise missing_setting("`albert_config_file`")
        if FLAGS.albert_config_file and not vocabulary:
            raise missing_setting(VOCABULARY_SETTINGS)
    model = _local_model_config()
    complete = model is not None and recipe is not None
    config = fine_tune_config(recipe if complete else None, model)
    check_run(config.run, batch_size_known=complete or FLAGS["train_batch_size"].present)
    if model:
        model.check_length(config.max_seq_length)
    return config if complete else None


def _local_model_config() -> AlbertConfig | None:
    """Returns the configuration of the model to train, if it is a local file."""
    path = FLAGS.albert_config_file
    if path:
        return AlbertConfig.load(path) if files.is_local(path) else None
    path = FLAGS.init_checkpoint or DEFAULT
    return local_config(DEFAULT if path == NONE else path)
