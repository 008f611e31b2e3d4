# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of the runners, and the settings, examples and tasks that they ask for."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from absl import flags

from albert_tf.cli.flags import check_needs, define_path, define_settings, given_settings
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.log import log
from albert_tf.pretrained import DEFAULT, NONE
from albert_tf.pretrained.locate import VOCABULARY
from albert_tf.settings import Settings, setting
from albert_tf.tasks.fine_tune_config import FineTuneConfig
from albert_tf.training.specs import RunConfig
from albert_tf.weights.run_folder import model_folder

if TYPE_CHECKING:
    from albert_tf.tasks.base import FineTuningTask
    from albert_tf.tasks.runner import Examples

    Task = TypeVar("Task", bound=FineTuningTask)

FLAGS = flags.FLAGS
#: What a fine-tuning run can do: --do_train on the examples of --train_file, and so on.
ACTIONS = {
    "train": "to train on",
    "eval": "to evaluate on, with their labels",
    "predict": "to predict",
}
#: Settings of RunConfig that fine-tuning leaves at their defaults, or has in another form.
_PRETRAINING = ("num_warmup_steps", "poly_power", "shallow_layers",
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


def define_finetuning_flags(examples: str) -> None:
    """Defines the flags of a fine-tuning runner; `examples` says what its files hold."""
    define_run_flags(FineTuneConfig, do_train=False, without=_PRETRAINING)
    flags.DEFINE_bool("do_predict", False, "Predict; needs only a trained --output_dir.")
    define_settings(ModelFiles)
    for action, purpose in ACTIONS.items():
        define_path(f"{action}_file", None, f"{examples} {purpose}.", needs=f"do_{action}")


def requested() -> list[str]:
    """Returns the ACTIONS that were asked for."""
    return [action for action in ACTIONS if FLAGS[f"do_{action}"].value]


def check_requested(*others: str) -> None:
    """Checks that there is something to do, and notes flags that have no effect; see `check_needs`.

    Args:
      *others: flags that ask for something, besides those of ACTIONS.

    Raises:
      AlbertError: there is nothing to do, or see `check_needs`.
    """
    names = [name for name in [*(f"do_{action}" for action in ACTIONS), *others] if name in FLAGS]
    if not any(FLAGS[name].value for name in names):
        *first, last = (f"--{name}" for name in names)
        raise AlbertError(f"There is nothing to do: give {', '.join(first)} or {last}.")
    check_needs()


def file_of(action: str) -> str:
    """Returns the file of one of ACTIONS; raises AlbertError if there is none."""
    if not (path := FLAGS[f"{action}_file"].value):
        raise AlbertError(f"--do_{action} needs --{action}_file.")
    return path


def read_examples(read: Callable[[str], Sequence[Any]]) -> Examples:
    """Returns the examples that `read` returns for each requested one of ACTIONS."""
    from albert_tf.tasks.runner import Examples

    asked = requested()
    train, held_out, new = (read(action) if action in asked else () for action in ACTIONS)
    return Examples(train, {"eval": held_out}, {"predict": new})


def check_outputs(names: Sequence[str]) -> None:
    """Raises AlbertError if files in --output_dir that will be replaced are read by this run."""
    read = [file_of(action) for action in requested()]
    for name in names:
        files.check_output(os.path.join(FLAGS.output_dir or "", name), read, overwrite=True)


def run_settings(cls: type[RunConfig]) -> dict[str, Any]:
    """Returns the settings that were given as flags."""
    settings = {"output_dir": "", **given_settings(cls)}
    if settings.get("init_checkpoint") in (NONE, ""):
        settings["init_checkpoint"] = None
    return settings


def open_task(
    task_class: type[Task],
    recipe: str,
    spec: Mapping[str, Any],
    changes: Mapping[str, Any] = {},
    **others: Any,
) -> tuple[Task, FineTuneConfig]:
    """Returns the task to train, or without --do_train that of the model in --output_dir.

    Args:
      task_class: the task.
      recipe: its recipe, for training.
      spec: its settings for training, without `max_seq_length`.
      changes: settings of a trained model to override. `max_seq_length` is one if its flag is
        given.
      **others: settings of the run that override the flags and the recipe.

    Raises:
      AlbertError: see `FineTuningTask.new` and `FineTuningTask.load`.
    """
    settings = {**run_settings(FineTuneConfig), **others}
    if not FLAGS.do_train:
        config = FineTuneConfig(**{**settings, "freeze": None, "init_checkpoint": None})
        given = {k: v for k, v in settings.items() if k == "max_seq_length"}
        return task_class.load(model_folder(config.output_dir), **{**changes, **given}), config
    from albert_tf.tasks.base import load_model_files

    own = FLAGS.albert_config_file, FLAGS.spm_model_file or FLAGS.vocab_file
    if not (FLAGS.init_checkpoint or any(own)):
        log.info(
            f"Without --init_checkpoint, the bundled {DEFAULT} is trained; --init_checkpoint={NONE}"
            " starts from random weights."
        )
        settings["init_checkpoint"] = DEFAULT
    source = settings.get("init_checkpoint") or (None if any(own) else DEFAULT)
    model_files = load_model_files(source, *own, FLAGS.do_lower_case)
    return task_class.new(*model_files, recipe, spec, settings)
