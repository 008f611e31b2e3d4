# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT to answer questions about a text (SQuAD 1.1 and 2.0).

  python run_squad.py --version=2.0 --do_train --do_eval --train_file=train-v2.0.json \\
    --eval_file=dev-v2.0.json --init_checkpoint=runs/base --output_dir=runs/squad
  python run_squad.py --do_predict --predict_file=new.json --output_dir=runs/squad

Evaluation and prediction write predictions.json, nbest_predictions.json and, for 2.0,
null_odds.json into the output directory; evaluation also writes eval_results.json. The directory
has all that prediction needs: the model, its settings and the threshold found on --eval_file, above
which a question counts as unanswerable. Settings come from a recipe for the model's size.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flag_modes import refuse_flags
from albert_tf.cli.path_flags import check_squad_file, define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tasks import flags as shared
from albert_tf.tasks.flags import FILES, is_requested
from albert_tf.tasks.squad.data import read_squad
from albert_tf.tasks.training_flags import lock_for_training

if TYPE_CHECKING:
    from albert_tf.tasks.fine_tune_config import FineTuneConfig
    from albert_tf.tasks.squad.task import SquadTask

FLAGS = flags.FLAGS
#: Flags whose values may differ between training and use of a model.
SEARCH = ("max_seq_length", "doc_stride", "max_query_length", "n_best_size", "max_answer_length",
          "start_n_top", "end_n_top", "compat")  # fmt: skip
BEAM_ONLY = ("start_n_top", "end_n_top")


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags()
    flags.DEFINE_enum(
        "version", None, ["1.1", "2.0"], "Version of SQuAD. 2.0 has unanswerable questions."
    )
    for action, (name, text) in {
        "do_train": ("train_file", "Questions to train on, in SQuAD's JSON layout."),
        "do_eval": ("eval_file", "Questions to evaluate on, with their answers."),
        "do_predict": ("predict_file", "Questions to answer, with or without answers."),
    }.items():
        when = functools.partial(is_requested, action)
        define_path(name, None, text, check=check_squad_file, when=when)
    flags.DEFINE_enum(
        "head", None, ["span", "beam"], "span: predicts start and end independently. beam: "
        "predicts the end given the start, and whether there is an answer. Default: beam for 2.0, "
        "span for 1.1, as in the release."
    )  # fmt: skip
    flags.DEFINE_integer(
        "doc_stride", 128, "Tokens between the starts of consecutive windows of a long text.", 1
    )
    flags.DEFINE_integer(
        "max_query_length", 64, "Maximum question length in tokens; longer ones are truncated.", 1
    )
    flags.DEFINE_integer("n_best_size", 20, "Answers per question in nbest_predictions.json.", 1)
    flags.DEFINE_integer("max_answer_length", 30, "Maximum answer length in tokens.", 1)
    flags.DEFINE_integer("start_n_top", 5, "Number of starts in the beam.", 1)
    flags.DEFINE_integer("end_n_top", 5, "Number of ends in the beam for each start.", 1)
    flags.DEFINE_float(
        "null_score_diff_threshold", None, "A question of 2.0 counts as unanswerable if its null "
        "odds are above this value. Default: the best value on --eval_file, else 0."
    )  # fmt: skip
    flags.DEFINE_bool(
        "compat", False, "Reproduce bugs of the TF1 release: the span head can select the question "
        "and padding, and 1.1 windows without the answer are trained to predict [CLS]."
    )  # fmt: skip


def _main() -> None:
    config = shared.check_settings(f"squad{FLAGS.version}")
    with lock_for_training():
        _run(config)


def _run(config: FineTuneConfig | None) -> None:
    """Trains, evaluates and predicts as the flags say."""
    # TensorFlow takes seconds to import; wrong flags and --help should not wait for it.
    from albert_tf.tasks.runner import Examples, run
    from albert_tf.tasks.squad import answers
    from albert_tf.tasks.squad.task import check_threshold

    inputs = [FLAGS[file].value for file in FILES.values() if FLAGS[file].value]
    for name in answers.FILES:
        files.check_output(os.path.join(FLAGS.output_dir, name), inputs, overwrite=True)
    # All data is read before anything is trained, so that its errors show at once.
    task, config = _open_task(config)
    check_threshold(task.spec.version, FLAGS.null_score_diff_threshold)
    if FLAGS.null_score_diff_threshold is not None:
        task.threshold = FLAGS.null_score_diff_threshold
    if task.spec.head == "span":
        refuse_flags(BEAM_ONLY, "the span head has no beam.")
    train, held_out, unseen = (
        read_squad(FLAGS[file].value, version=task.spec.version) if is_requested(action) else ()
        for action, file in FILES.items()
    )
    run(task, Examples.of(train, held_out, unseen), config)


def _check_flags() -> None:
    shared.check_requested()
    shared.check_files()
    if FLAGS.do_train and not FLAGS.version:
        raise AlbertError("--do_train needs --version: 1.1, or 2.0 for unanswerable questions too.")
    shared.check_finetuning_modes()


def _changes() -> dict[str, object]:
    """Returns the settings that differ from those of the training."""
    return {name: FLAGS[name].value for name in SEARCH if FLAGS[name].present}


def _open_task(config: FineTuneConfig | None) -> tuple[SquadTask, FineTuneConfig]:
    """Returns the task to train; without --do_train, that of the model in --output_dir."""
    from albert_tf.tasks.squad.task import SquadSpec, SquadTask
    from albert_tf.weights.run_folder import model_folder

    if not FLAGS.do_train:
        task = SquadTask.load(model_folder(FLAGS.output_dir), **_changes())
        if FLAGS.version not in (None, task.spec.version):
            raise AlbertError(
                f"The model in {FLAGS.output_dir} is one of SQuAD {task.spec.version}, not "
                f"{FLAGS.version}; leave --version out."
            )
        if FLAGS.head not in (None, task.spec.head):
            raise AlbertError(
                f"The model in {FLAGS.output_dir} has the {task.spec.head} head, not the "
                f"{FLAGS.head} head; leave --head out."
            )
        return task, config
    model, tokenizer = shared.open_model_files()
    config = config or shared.fine_tune_config(f"squad{FLAGS.version}", model)
    settings = {name: FLAGS[name].value for name in ("version", "head", *SEARCH)}
    spec = SquadSpec(**{**settings, "max_seq_length": config.max_seq_length})
    model, dropout = config.model_config(model), config.classifier_dropout
    return SquadTask(model, tokenizer, spec, dropout), config


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags, check_flags=_check_flags)


if __name__ == "__main__":
    main()
