# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT to choose among answers: RACE, or questions with any number of options.

  python run_race.py --data_dir=RACE --do_train --do_eval --do_predict \\
    --init_checkpoint=runs/base --output_dir=runs/race
  python run_race.py --do_train --train_file=train.jsonl --num_choices=5 \\
    --init_checkpoint=runs/base --output_dir=runs/mine
  python run_race.py --do_predict --predict_file=new.jsonl --output_dir=runs/mine

RACE is read as distributed, one file for each article, or from all.txt; run_race.py trains on
train, evaluates on dev and predicts test. A line of a .jsonl file is an object with context,
question, options and label (from 0) or answer (a letter); context or question may be absent and,
for prediction, the label. A blank "_" in a question is replaced with the option. Evaluation writes
eval_results.json, with the accuracy on all questions and on those of middle and of high schools;
prediction writes predictions.tsv and, if all questions are labelled, predict_results.json. Settings
come from a recipe for the model's size; --gradient_accumulation_steps fits its 128 sequences a step
into less memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flag_modes import refuse_flags
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.text_files import check_text_file
from albert_tf.tasks.flags import (
    FILES,
    check_finetuning_modes,
    check_requested,
    check_settings,
    define_finetuning_flags,
    fine_tune_config,
    is_requested,
    open_model_files,
)
from albert_tf.tasks.multiple_choice.data import RACE_GROUPS, check_race
from albert_tf.tasks.training_flags import lock_for_training

if TYPE_CHECKING:
    from albert_tf.tasks.fine_tune_config import FineTuneConfig
    from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
    from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask

FLAGS = flags.FLAGS
#: The split of RACE that each action reads without a file.
SPLITS = {"do_train": "train", "do_eval": "dev", "do_predict": "test"}
#: Flags whose values may differ between training and use of a model.
SPEC = ("num_choices", "max_seq_length", "max_qa_length")


def define_flags() -> None:
    """Defines the flags of this script."""
    define_finetuning_flags()
    FLAGS.set_default("eval_batch_size", 16)  # 64 sequences, as in other tasks.
    define_path(
        "data_dir", None, "Folder with RACE's folders train, dev and test.",
        check=files.check_folder, when=lambda: any(_race_splits())
    )  # fmt: skip
    flags.DEFINE_bool("high_only", False, "Use only the high school questions.")
    flags.DEFINE_bool("middle_only", False, "Use only the middle school questions.")
    for action, name in FILES.items():
        text = f"Questions for --{action}, a .jsonl file (also .gz, .bz2 or .xz)."
        text += f" Default: {SPLITS[action]} of --data_dir."
        when = functools.partial(is_requested, action)
        define_path(name, None, text, check=check_text_file, when=when)
    flags.DEFINE_integer(
        "num_choices", None, "Options per question. Default: 4, or as in training.",
        2, 26
    )  # fmt: skip
    flags.DEFINE_integer(
        "max_qa_length", None, "Maximum length of question and option together, in tokens; the "
        "beginning of longer ones is cut off. Default: 128, or half of --max_seq_length if that is "
        "less.", 1
    )  # fmt: skip


def _main() -> None:
    if FLAGS.data_dir and files.is_local(FLAGS.data_dir):
        for split in _race_splits():
            check_race(FLAGS.data_dir, split, _race_groups())
    config = check_settings("race")
    with lock_for_training():
        _run(config)


def _run(config: FineTuneConfig | None) -> None:
    """Trains, evaluates and predicts as the flags say."""
    # TensorFlow takes seconds to import; wrong flags and --help should not wait for it.
    from albert_tf.tasks.runner import Examples, run

    # All data is read before anything is trained, so that its errors show at once.
    task, config = _open_task(config)
    train, held_out, unseen = (_read(action, task.spec.num_choices) for action in FILES)
    run(task, Examples.of(train, held_out, unseen), config)


def _race_splits() -> Iterator[str]:
    """Yields the splits of RACE to read."""
    for action, file in FILES.items():
        if is_requested(action) and not FLAGS[file].value:
            yield SPLITS[action]


def _race_groups() -> tuple[str, ...]:
    """Returns the groups of RACE to read."""
    excluded = {"middle": FLAGS.high_only, "high": FLAGS.middle_only}
    return tuple(group for group in RACE_GROUPS if not excluded[group])


def _check_flags() -> None:
    check_requested()
    for action, file in FILES.items():
        if is_requested(action) and not FLAGS[file].value and not FLAGS.data_dir:
            raise AlbertError(f"--{action} needs --data_dir (for RACE) or --{file}.")
    if FLAGS.high_only and FLAGS.middle_only:
        raise AlbertError("Give --high_only or --middle_only, not both; neither reads all.")
    if all(FLAGS[file].value for action, file in FILES.items() if is_requested(action)):
        reason = "all questions are read from --train_file, --eval_file and --predict_file."
        refuse_flags(("data_dir", "high_only", "middle_only"), reason)
    check_finetuning_modes()


def _read(action: str, num_choices: int) -> list[MultipleChoiceExample]:
    """Returns the questions for an action; none if it is not requested."""
    from albert_tf.tasks.multiple_choice import data

    if not is_requested(action):
        return []
    if path := FLAGS[FILES[action]].value:
        return data.read_questions(path, num_choices)
    return data.read_race(FLAGS.data_dir, SPLITS[action], _race_groups(), num_choices)


def _open_task(config: FineTuneConfig | None) -> tuple[MultipleChoiceTask, FineTuneConfig]:
    """Returns the task to train; without --do_train, that of the model in --output_dir."""
    from albert_tf.tasks.multiple_choice.task import (
        MultipleChoiceSpec,
        MultipleChoiceTask,
        default_qa_length,
    )
    from albert_tf.weights.run_folder import model_folder

    if not FLAGS.do_train:
        changes = {name: FLAGS[name].value for name in SPEC if FLAGS[name].present}
        return MultipleChoiceTask.load(model_folder(FLAGS.output_dir), **changes), config
    model, tokenizer = open_model_files()
    config = config or fine_tune_config("race", model)
    length = config.max_seq_length
    qa_length = FLAGS.max_qa_length or default_qa_length(length)
    spec = MultipleChoiceSpec(FLAGS.num_choices or 4, length, qa_length)
    model, dropout = config.model_config(model), config.classifier_dropout
    return MultipleChoiceTask(model, tokenizer, spec, dropout), config


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags, check_flags=_check_flags)


if __name__ == "__main__":
    main()
