# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of the runners, and the settings, examples and tasks that they ask for."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from absl import flags

from albert_tf.cli.flags import (
    check_needs,
    define_path,
    define_settings,
    given_settings,
    refuse_flags,
)
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.log import log
from albert_tf.pretrained import DEFAULT, NONE
from albert_tf.pretrained.locate import VOCABULARY
from albert_tf.settings import Settings, setting
from albert_tf.tasks.fine_tune_config import FineTuneConfig, check_seeds
from albert_tf.training.specs import RunConfig
from albert_tf.weights.run_folder import model_folder

if TYPE_CHECKING:
    from albert_tf.config import AlbertConfig
    from albert_tf.tasks.base import FineTuningTask
    from albert_tf.tasks.runner import Examples
    from albert_tf.tokenization.tokenizer import Tokenizer

    Task = TypeVar("Task", bound=FineTuningTask)

FLAGS = flags.FLAGS
#: What a fine-tuning run can do: --do_train on the examples of --train_file, and so on.
ACTIONS = ("train", "eval", "predict")
#: Settings of RunConfig that fine-tuning leaves at their defaults, or has in another form.
_PRETRAINING = ("num_warmup_steps", "start_warmup_step", "poly_power", "shallow_layers",
                "num_shallow_steps")  # fmt: skip
_BESIDE = f"Default: that of --init_checkpoint; with {NONE}, of {DEFAULT}."


@dataclasses.dataclass(frozen=True)
class ModelFiles(Settings):
    """The model to fine-tune, where it is not that of the initial checkpoint."""

    albert_config_file: str | None = setting(
        None,
        "JSON file, or name of a preset (albert_base_v2), which is an architecture without "
        f"weights. {_BESIDE}",
        path=True,
        needs="do_train",
    )
    spm_model_file: str | None = setting(
        None, f"{VOCABULARY}. {_BESIDE}", path=True, needs="do_train"
    )
    vocab_file: str | None = setting(
        None, "The same as --spm_model_file.", path=True, needs="do_train"
    )
    do_lower_case: bool | None = setting(
        None,
        "Lower-case the text. Default: as in tokenizer.json, or true.",
        needs="do_train",
    )


def define_run_flags(config: type[RunConfig], do_train: bool, without: Sequence[str] = ()) -> None:
    """Defines the flags of a runner.

    Args:
      config: its settings.
      do_train: the default of --do_train.
      without: names of settings that are no flags.
    """
    flags.DEFINE_bool("do_train", do_train, "Train.")
    flags.DEFINE_bool("do_eval", False, "Evaluate, during training and at the end.")
    define_settings(config, without=without)
    flags.DEFINE_alias("albert_hub_module_handle", "init_checkpoint")
    flags.DEFINE_bool("use_tpu", False, "The same as --strategy=tpu.")


def define_finetuning_flags() -> None:
    """Defines the flags of all fine-tuning runners."""
    define_run_flags(FineTuneConfig, do_train=False, without=_PRETRAINING)
    flags.DEFINE_bool("do_predict", False, "Predict; needs only a trained --output_dir.")
    define_settings(ModelFiles)


def define_files(content: str) -> None:
    """Defines the flags of the examples of each action; `content` says what the files hold."""
    purposes = ("to train on", "to evaluate on, with their labels", "to predict")
    for action, purpose in zip(ACTIONS, purposes):
        define_path(f"{action}_file", None, f"{content} {purpose}.", needs=f"do_{action}")


def requested() -> frozenset[str]:
    """Returns the ACTIONS that were asked for."""
    return frozenset(action for action in ACTIONS if FLAGS[f"do_{action}"].value)


def check_requested(*actions: str, others: Sequence[str] = ()) -> None:
    """Checks that there is something to do, and that no flag contradicts another one.

    Args:
      *actions: those of the script, of ACTIONS.
      others: further flags that ask for something.

    Raises:
      AlbertError: there is nothing to do, or flags contradict each other.
    """
    names = [*(f"do_{action}" for action in actions), *others]
    if not any(FLAGS[name].value for name in names):
        *first, last = (f"--{name}" for name in names)
        raise AlbertError(f"There is nothing to do: give {', '.join(first)} or {last}.")
    check_needs()
    if FLAGS.use_tpu and FLAGS["strategy"].present and FLAGS.strategy != "tpu":
        raise AlbertError(f"Give --use_tpu or --strategy={FLAGS.strategy}, not both.")
    if not FLAGS.use_tpu and FLAGS.strategy != "tpu":
        names = ("tpu_name", "tpu_zone", "gcp_project")
        refuse_flags(names, "they require --strategy=tpu.")
    if "num_seeds" in FLAGS and FLAGS.do_train:
        check_seeds(FLAGS.num_seeds, FLAGS.do_eval)


def check_files() -> None:
    """Raises AlbertError if the file of a requested action was not given."""
    for action in ACTIONS:
        if FLAGS[f"do_{action}"].value and not file_of(action):
            raise AlbertError(f"--do_{action} needs --{action}_file.")


def read_examples(read: Callable[[str], Sequence[Any]]) -> Examples:
    """Returns the examples that `read` returns for each requested one of ACTIONS."""
    from albert_tf.tasks.runner import Examples

    actions = requested()
    return Examples.of(*(read(action) if action in actions else () for action in ACTIONS))


def file_of(action: str) -> str:
    """Returns the file of one of ACTIONS."""
    return FLAGS[f"{action}_file"].value


def check_outputs(names: Sequence[str]) -> None:
    """Raises AlbertError if files in --output_dir that will be replaced are read by this run."""
    read = [file_of(action) for action in requested()]
    for name in names:
        path = os.path.join(FLAGS.output_dir, name)
        files.check_output(path, filter(None, read), overwrite=True)


def run_settings(cls: type[RunConfig]) -> dict[str, Any]:
    """Returns the settings that were given as flags."""
    settings = given_settings(cls)
    if FLAGS.use_tpu:
        settings["strategy"] = "tpu"
    if settings.get("init_checkpoint") in (NONE, ""):
        settings["init_checkpoint"] = None
    return settings


def starts_from_default() -> bool:
    """Whether training starts from the default model, as no flag names another one."""
    names = ("init_checkpoint", "albert_config_file", "spm_model_file", "vocab_file")
    return FLAGS.do_train and not any(FLAGS[name].value for name in names)


def open_model_files() -> tuple[AlbertConfig, Tokenizer]:
    """Loads configuration and tokenizer of the model to train; see `base.load_model_files`."""
    from albert_tf.tasks.base import load_model_files

    config_file, vocabulary = FLAGS.albert_config_file, FLAGS.spm_model_file or FLAGS.vocab_file
    checkpoint = FLAGS.init_checkpoint or None
    if starts_from_default():
        log.info(
            f"Without --init_checkpoint, the bundled {DEFAULT} is trained; --init_checkpoint={NONE}"
            " starts from random weights."
        )
        checkpoint = DEFAULT
    elif checkpoint == NONE:
        checkpoint = None if config_file or vocabulary else DEFAULT
    return load_model_files(checkpoint, config_file, vocabulary, FLAGS.do_lower_case)


def fine_tune_config(
    recipe: str | None, model: AlbertConfig | None = None, **others: Any
) -> FineTuneConfig:
    """Returns the settings of a recipe, overridden by the flags that were given.

    Args:
      recipe: of the task; None for none.
      model: configuration of the model; it may be None without a recipe.
      **others: settings that override both.

    Raises:
      AlbertError: see `FineTuneConfig.from_recipe`.
    """
    settings = {**run_settings(FineTuneConfig), **others}
    if starts_from_default():
        settings["init_checkpoint"] = DEFAULT
    if not FLAGS.do_train:
        settings["freeze"] = settings["init_checkpoint"] = None
    return FineTuneConfig.from_recipe(recipe, model, **settings)


def open_task(
    task_class: type[Task],
    recipe: str,
    make_spec: Callable[[int], Any],
    changes: Mapping[str, Any],
    **others: Any,
) -> tuple[Task, FineTuneConfig]:
    """Returns the task to train, or without --do_train that of the model in --output_dir.

    Args:
      task_class: the task.
      recipe: its recipe, for training.
      make_spec: makes the specification to train from `max_seq_length`.
      changes: entries of a trained model's specification to override. `max_seq_length` is one if
        its flag is given.
      **others: see `fine_tune_config`.
    """
    if not FLAGS.do_train:
        config = fine_tune_config(None, **others)
        if FLAGS["max_seq_length"].present:
            changes = {**changes, "max_seq_length": config.max_seq_length}
        return task_class.load(model_folder(config.output_dir), **changes), config
    model, tokenizer = open_model_files()
    config = fine_tune_config(recipe, model, **others)
    spec = make_spec(config.max_seq_length)
    model, dropout = config.model_config(model), config.classifier_dropout
    return task_class(model, tokenizer, spec, dropout), config


def lock_for_training(*below: str) -> contextlib.AbstractContextManager[None]:
    """Joins the cluster, if there is one, and locks --output_dir if the run trains.

    Runners hold the lock while they read data and write files. It imports TensorFlow.

    Args:
      *below: names of folders in --output_dir that the run also trains in.

    Raises:
      AlbertError: another process trains there; see `output_lock`.
    """
    from albert_tf.training.cluster import output_lock

    if not FLAGS.output_dir:
        raise AlbertError("`output_dir` is needed: checkpoints and results are written there.")
    folders = [FLAGS.output_dir, *(os.path.join(FLAGS.output_dir, name) for name in below)]
    strategy = "tpu" if FLAGS.use_tpu else FLAGS.strategy
    return output_lock(strategy, *(folders if FLAGS.do_train else []))
