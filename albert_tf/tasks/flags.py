# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of the runners, and what they ask for."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from albert_tf.cli.flags import FLAGS, check_needs, define_path, define_settings, given_settings
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.log import log
from albert_tf.pretrained import DEFAULT, NONE
from albert_tf.pretrained.locate import VOCABULARY
from albert_tf.settings import Settings, field_names, training_setting
from albert_tf.tasks.fine_tune_config import FineTuneConfig
from albert_tf.training.specs import RunConfig
from albert_tf.weights.run_folder import model_folder

if TYPE_CHECKING:
    from albert_tf.tasks.fine_tuning_task import FineTuningTask, Values

#: What a fine-tuning run can do: --do_train on the examples of --train_file, and so on.
ACTIONS = {
    "train": "to train on",
    "eval": "to evaluate on, with their labels",
    "predict": "to predict",
}
#: Settings of RunConfig that fine-tuning leaves at their defaults, or has in another form.
_PRETRAINING = ("num_warmup_steps", "shallow_layers", "num_shallow_steps")
_BESIDE = f"Default: that of --init_checkpoint; with {NONE}, of {DEFAULT}."


@dataclasses.dataclass(frozen=True)
class ModelFiles(Settings):
    """The model to fine-tune, where it is not that of the initial checkpoint."""

    albert_config_file: str | None = training_setting(
        None,
        "JSON file, also Hugging Face's config.json, or name of a preset (albert_base_v2), which "
        f"is an architecture without weights. {_BESIDE}",
        path=True,
    )
    spm_model_file: str | None = training_setting(None, f"{VOCABULARY}. {_BESIDE}", path=True)
    vocab_file: str | None = training_setting(None, "The same as --spm_model_file.", path=True)
    do_lower_case: bool | None = training_setting(
        None, "Lower-case the text. Default: as in tokenizer.json, or true."
    )


def define_run_flags(config: type[RunConfig], do_train: bool, without: Sequence[str] = ()) -> None:
    """Defines the flags of a runner: of its settings, but for some, and --do_train's default."""
    flags.DEFINE_bool("do_train", do_train, "Train.")
    flags.DEFINE_bool("do_eval", False, "Evaluate, during training and at the end.")
    define_settings(config, without=without)


def define_finetuning_flags(examples: str, spec: type[Settings]) -> None:
    """Defines the flags of a fine-tuning runner, given what its files hold, and its settings."""
    define_run_flags(FineTuneConfig, do_train=False, without=_PRETRAINING)
    flags.DEFINE_bool("do_predict", False, "Predict; needs only a trained --output_dir.")
    define_settings(ModelFiles)
    for action, purpose in ACTIONS.items():
        define_path(f"{action}_file", None, f"{examples} {purpose}.", needs=f"do_{action}")
    define_settings(spec, without=("max_seq_length",))


def requested() -> list[str]:
    """Returns the ACTIONS that were asked for.

    Raises:
      AlbertError: there is none; or see `check_needs`.
    """
    known = {action: f"do_{action}" for action in ACTIONS if f"do_{action}" in FLAGS}
    asked = [action for action, name in known.items() if FLAGS[name].value]
    if not asked:
        raise AlbertError(f"There is nothing to do: give one of --{', --'.join(known.values())}.")
    check_needs()
    return asked


def file_of(action: str) -> str:
    """Returns the file of one of ACTIONS; raises AlbertError if there is none."""
    if not (path := FLAGS[f"{action}_file"].value):
        raise AlbertError(f"--do_{action} needs --{action}_file.")
    return path


def run_settings(cls: type[RunConfig]) -> dict[str, Any]:
    """Returns the settings that were given as flags, without the checkpoint if it is "none"."""
    settings = {"output_dir": "", **given_settings(cls)}
    if settings.get("init_checkpoint") in (NONE, ""):
        settings["init_checkpoint"] = None
    return settings


def open_task(
    task_class: type[FineTuningTask],
    spec: Values,
    recipe: str | None = None,
    **others: Any,
) -> tuple[FineTuningTask, FineTuneConfig]:
    """Returns the task to train, or without --do_train that of the model in --output_dir.

    Settings of the task that are given as flags are those to train with, or override those of the
    trained model; so does --max_seq_length. `spec` has settings of the task for training that are
    no flags; for `recipe` see `FineTuningTask.new`; `others` are settings of the run that override
    the flags and the recipe.

    Raises:
      AlbertError: see `FineTuningTask.new` and `FineTuningTask.load`.
    """
    of_run = {**run_settings(FineTuneConfig), **others}
    given = {**of_run, **given_settings(task_class.spec_class)}
    if not FLAGS.do_train:
        config = FineTuneConfig(**{"eval_batch_size": task_class.eval_batch_size, **of_run})
        own = field_names(task_class.spec_class)
        changes = {name: value for name, value in given.items() if name in own}
        return task_class.load(model_folder(config.output_dir), **changes), config
    from albert_tf.weights.model_files import load_model_files

    own = FLAGS.albert_config_file, FLAGS.spm_model_file or FLAGS.vocab_file
    if not (FLAGS.init_checkpoint or any(own)):
        log.info(
            f"Without --init_checkpoint, the bundled {DEFAULT} is trained; --init_checkpoint={NONE}"
            " starts from random weights."
        )
        given["init_checkpoint"] = DEFAULT
    source = given.get("init_checkpoint") or (None if any(own) else DEFAULT)
    model_files = load_model_files(source, *own, FLAGS.do_lower_case)
    return task_class.new(*model_files, spec, given, recipe)


def fine_tune(
    task_class: type[FineTuningTask],
    use: str,
    read: Callable[[str, Any], Sequence[Any]] | None = None,
    learned: Callable[[Sequence[Any]], Values] | None = None,
    change: Callable[[FineTuningTask], object] = lambda task: None,
) -> None:
    """Trains, evaluates and predicts as the flags say, and prints what to try next.

    All data is read before anything is trained, so that its errors show at once.

    Args:
      task_class: of the model.
      use: of that, the command that uses it, with {} for its folder.
      read: returns the examples for one of ACTIONS, given the settings of the task, which are None
        for those to train on; by default `task_class.read` of its file.
      learned: in place of the method of `task_class`.
      change: changes the task before it is used.

    Raises:
      AlbertError: the run would replace a file that it reads; or see `open_task`.
    """
    from albert_tf.tasks.runner import Examples, run
    from albert_tf.tasks.tables import with_labels

    asked = requested()
    read = read or (lambda action, _: task_class.read(file_of(action), action))
    inputs = [path for action in asked if (path := FLAGS[f"{action}_file"].value)]
    for name in task_class.prediction_files:
        path = os.path.join(FLAGS.output_dir or "", name)
        files.check_output(path, inputs, overwrite=True)
    train = with_labels(read("train", None)) if FLAGS.do_train else ()
    spec = (learned or task_class.learned)(train) if FLAGS.do_train else {}
    task, config = open_task(task_class, spec)
    change(task)
    held_out, new = (read(x, task.spec) if x in asked else () for x in ("eval", "predict"))
    run(task, Examples(train, {"eval": held_out}, {"predict": new}), config)
    print_commands(use, FLAGS.output_dir)


def print_commands(use: str, output_dir: str) -> None:
    """Prints what to try after a training; for `use` see `fine_tune`."""
    from albert_tf.tokenization.tokenizer import SPEC_FILE

    # Pretraining has no tokenizer if the records of another program have none.
    if FLAGS.do_train and files.exists(os.path.join(model_folder(output_dir), SPEC_FILE)):
        folder = shlex.quote(output_dir)
        log.info(
            f"Try the model, and export it:\n  albert {use.format(folder)}\n"
            f"  albert export --albert_directory={folder} \\\n    --export_path={folder}-export"
        )
