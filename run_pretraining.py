# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrains ALBERT on records made by data_prep/create_pretraining_data.py.

  python run_pretraining.py --input_file=records/train --eval_input_file=records/heldout \\
    --albert_config_file=albert_base_v2 --output_dir=runs/base --train_batch_size=256

The same command resumes a run: weights, optimizer, step and position in the data continue where
they were. On SIGTERM or SIGINT (Ctrl-C) it finishes the current steps, saves, and exits with 143 or
130; so it does on SIGHUP and SIGUSR1. A second signal ends it at once. Errors exit with 1.
"""

from __future__ import annotations

import dataclasses
import time

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.durations import define_duration
from albert_tf.cli.flag_modes import refuse_flags
from albert_tf.cli.path_flags import check_records, define_path, define_paths
from albert_tf.config import AlbertConfig, missing_setting
from albert_tf.data.masking import MAX_NGRAM
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.optimization import scaled_learning_rate
from albert_tf.pretrained import NONE
from albert_tf.pretrained.locate import local_config
from albert_tf.tasks.pretraining.time_budget import (
    Plan,
    make_plan,
    masks,
    recorded_plan,
    shallow_layers,
    smallest_batch,
)
from albert_tf.tasks.training_flags import (
    check_modes,
    check_run,
    define_training_flags,
    lock_for_training,
    run_settings,
)
from albert_tf.training.specs import MAX_STEPS, RunConfig, check_number

FLAGS = flags.FLAGS
#: Flags that only training reads, beside those of all runners.
TRAINING_ONLY = ("num_train_steps", "num_warmup_steps", "start_warmup_step", "learning_rate",
                 "poly_power", "shallow_layers", "num_shallow_steps", "masking", "masked_lm_prob",
                 "ngram", "neighbor_attention", "time_budget")  # fmt: skip
#: Flags that --time_budget sets.
PLANNED = ("train_batch_size", "num_train_steps", "num_warmup_steps", "start_warmup_step",
           "learning_rate", "poly_power", "shallow_layers", "num_shallow_steps", "masked_lm_prob",
           "ngram", "neighbor_attention", "init_checkpoint", "save_checkpoints_steps",
           "optimizer")  # fmt: skip


def define_flags() -> None:
    """Defines the flags of this script."""
    define_training_flags(
        train_batch_size=4096,
        eval_batch_size=64,
        optimizer="lamb",
        save_checkpoints_steps=5000,
        without_init=f"Default: {NONE}.",
    )
    define_paths(
        "input_file", None, "Training records: a comma list of TFRecord files, globs, or folders "
        "written by create_pretraining_data.py. Required for --do_train.",
        check=check_records
    )  # fmt: skip
    define_paths(
        "eval_input_file", None, "Held-out records to evaluate on, in the same form.",
        check=check_records
    )  # fmt: skip
    define_path(
        "albert_config_file", None, "Model configuration: a JSON file, or a preset's name such as "
        "albert_base_v2, which is an architecture without weights (its vocab_size then follows the "
        "records). Default: that of --init_checkpoint.", check=AlbertConfig.load
    )  # fmt: skip
    flags.DEFINE_integer(
        "max_seq_length", None, "Read compact records at this length. Shorter sequences are random "
        "parts of their text, without sentence order. Default: the length of the records, which "
        "masked records must have.", 1
    )  # fmt: skip
    flags.DEFINE_integer(
        "max_predictions_per_seq", None, "Check that the records have this value.", 1
    )
    flags.DEFINE_enum(
        "masking", "auto", ["auto", "static", "dynamic"], "Masks and sentence order to train on. "
        "static: those in the records. dynamic: drawn anew in every epoch, for records built with "
        "--record_format=compact. auto: depends on the records in --input_file. Held-out records "
        "are always read as they were built, and masks drawn for them never change."
    )  # fmt: skip
    flags.DEFINE_float(
        "masked_lm_prob", None, "Share of the tokens to predict when training on compact records. "
        "Default: the one they were built for. Held-out records are not affected.", 0.01, 1.0
    )  # fmt: skip
    flags.DEFINE_integer(
        "ngram", None, "The most words that are masked as one span when training on compact "
        "records. Default: as they were built.", 1, MAX_NGRAM
    )  # fmt: skip
    flags.DEFINE_boolean(
        "neighbor_attention", False, "Start from random weights with which two attention heads "
        "look at the previous and at the next token. Small models learn context several times "
        "sooner. The paper starts without."
    )  # fmt: skip
    flags.DEFINE_float("sop_weight", 1.0, "Weight of the sentence order loss; 0: none.", 0.0)
    flags.DEFINE_float(
        "learning_rate", None, "Peak learning rate. Default: 0.00176 × sqrt(train_batch_size / "
        "4096), which is the paper's rate for its batch of 4096.", 0.0
    )  # fmt: skip
    define_duration(
        "time_budget", None, "Train for about this long on this machine. Plans batch, steps "
        "and learning rate from the measured speed; a resumed run keeps its plan. Small models "
        "learn more in the same time this way: with --neighbor_attention, half of the layers at "
        "first and, on compact records, --masked_lm_prob=0.4 --ngram=1. Sets --precision=auto "
        "unless you give one. For small models trained from random weights. Measured in runs of 36 "
        "minutes and, with all layers from the start, of up to two hours; longer runs are possible."
    )  # fmt: skip
    flags.DEFINE_float("poly_power", 1.0, "Exponent of the polynomial decay.", 0.0)
    flags.DEFINE_integer("num_train_steps", 125000, "Training steps.", 1, MAX_STEPS)
    flags.DEFINE_integer("num_warmup_steps", 3125, "Steps of linear warm-up.", 0)
    flags.DEFINE_integer("start_warmup_step", 0, "First step of the warm-up.", 0)
    flags.DEFINE_integer(
        "shallow_layers", None, "Number of layers in the first --num_shallow_steps steps. Steps "
        "with fewer layers take less time and learn almost as much. The layers must share all "
        "their weights. Evaluations always use all layers.", 1
    )  # fmt: skip
    flags.DEFINE_integer(
        "num_shallow_steps", 0, "Number of steps with --shallow_layers; the others train all "
        "layers.", 0
    )  # fmt: skip
    flags.DEFINE_integer(
        "eval_every_steps",
        None,
        "Steps between evaluations during training. Default: evaluate at the end only.",
        1,
    )
    flags.DEFINE_integer("max_eval_steps", 100, "Maximum number of batches per evaluation.", 1)


def _check_flags() -> None:
    if not (FLAGS.do_train or FLAGS.do_eval):
        raise AlbertError("There is nothing to do: give --do_train or --do_eval.")
    if FLAGS.do_eval and not FLAGS.eval_input_file:
        raise AlbertError("--do_eval needs --eval_input_file with held-out records.")
    if FLAGS.do_train and not FLAGS.input_file:
        raise AlbertError("--do_train needs --input_file with training records.")
    check_modes({"do_eval": "eval_input_file"}, TRAINING_ONLY)
    check_number("--sop_weight", FLAGS.sop_weight)
    if FLAGS.neighbor_attention and FLAGS.init_checkpoint not in (None, NONE):
        raise AlbertError(
            "--neighbor_attention is for random weights, but --init_checkpoint has trained ones; "
            "leave one of them out."
        )
    if FLAGS.time_budget:
        refuse_flags(PLANNED, "--time_budget plans it; leave it out.")
        if FLAGS.strategy in ("multi_worker", "tpu") or FLAGS.use_tpu:
            raise AlbertError(
                "--time_budget is for processors and GPUs of one machine; for clusters and TPUs "
                "give --num_train_steps, --train_batch_size and --learning_rate."
            )


def _main() -> None:
    run_config = _run_config()
    _check_settings(run_config)
    with lock_for_training():
        if FLAGS.time_budget and FLAGS.do_train:
            plan = _plan(run_config)
            _run(plan.run_config(run_config), plan)
        else:
            _run(run_config, FLAGS)


def _run_config() -> RunConfig:
    """Returns the settings of the run, before a plan changes them."""
    settings = run_settings()
    if FLAGS.learning_rate is None:
        settings["learning_rate"] = scaled_learning_rate(FLAGS.train_batch_size)
    # The more steps fit into the time, the more a model learns.
    if FLAGS.time_budget and not FLAGS["precision"].present:
        settings["precision"] = "auto"
    return RunConfig(**settings)


def _plan(run_config: RunConfig) -> Plan:
    """Returns the plan of a run with --time_budget: that of the output directory, or a new one."""
    from albert_tf.modeling.neighbor_attention import has_room
    from albert_tf.tasks.pretraining.data import are_compact, open_records, sequence_length
    from albert_tf.tasks.pretraining.task import PretrainingTask, model_config
    from albert_tf.training.strategy import mirrored_devices
    from albert_tf.training.timing import step_seconds

    began = time.monotonic()
    is_compact = are_compact(FLAGS.input_file)
    if plan := recorded_plan(FLAGS.output_dir, FLAGS.time_budget, is_compact):
        return plan
    model = model_config(FLAGS.albert_config_file, FLAGS.input_file)
    source = open_records(
        FLAGS.input_file, model, masking=FLAGS.masking, **masks(is_compact), **_record_settings()
    )
    devices = len(mirrored_devices()) if FLAGS.strategy == "mirrored" else 1
    parts = devices * run_config.gradient_accumulation_steps
    smallest = smallest_batch(sequence_length(source), parts)
    print("Measuring the speed.")
    config = dataclasses.replace(run_config, train_batch_size=smallest)
    depths = {None, shallow_layers(model)}
    measured, timing = step_seconds(PretrainingTask(model, source), config, source, depths)
    took = time.monotonic() - began
    # The run takes about as long to start as it took here until the steps were timed.
    left = FLAGS.time_budget - took - (took - timing)
    return make_plan(FLAGS.time_budget, left, measured, smallest, is_compact, has_room(model))


def _record_settings() -> dict[str, object]:
    """Returns the arguments of open_records that hold for training and for held-out records."""
    sizes = {name: FLAGS[name].value for name in ("max_seq_length", "max_predictions_per_seq")}
    return {"expected": sizes}


def _check_settings(run_config: RunConfig) -> None:
    """Checks the settings as far as possible without TensorFlow.

    Raises:
      AlbertError: the settings are impossible.
    """
    check_run(run_config, batch_size_known=not FLAGS.time_budget)
    length, predictions = FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    if length and predictions and predictions >= length:
        raise AlbertError(
            f"--max_predictions_per_seq={predictions} must be less than --max_seq_length={length}."
        )
    config = None
    if FLAGS.albert_config_file:
        if files.is_local(FLAGS.albert_config_file):
            config = AlbertConfig.load(FLAGS.albert_config_file)
    elif not run_config.init_checkpoint:
        raise missing_setting("--albert_config_file")
    else:
        config = local_config(run_config.init_checkpoint)
    if config and length:
        config.check_length(length)
    if FLAGS.do_train and not FLAGS.time_budget:
        run_config.check_shallow_steps(FLAGS.num_train_steps)
        if config:
            config.with_layers(run_config.shallow_layers)


def _run(run_config: RunConfig, settings: Plan | flags.FlagValues) -> None:
    """Trains and evaluates as the flags say, or within a plan."""
    # TensorFlow takes seconds to import; wrong flags and --help should not wait for it.
    from albert_tf.tasks.pretraining.data import check_held_out, open_records
    from albert_tf.tasks.pretraining.task import PretrainingTask, model_config
    from albert_tf.training.estimator import Estimator
    from albert_tf.training.results import constant_answer_note, print_metrics, write_results
    from albert_tf.training.specs import EvalSpec, TrainSpec
    from albert_tf.weights.load import check_architecture

    input_file = FLAGS.input_file or FLAGS.eval_input_file  # To evaluate, the latter is enough.
    config = model_config(FLAGS.albert_config_file, input_file, run_config.init_checkpoint)
    if run_config.init_checkpoint:
        check_architecture(config, run_config.init_checkpoint)
    masking = {}
    if FLAGS.do_train:
        masking = {
            "masking": FLAGS.masking,
            "masked_lm_prob": settings.masked_lm_prob,
            "ngram": settings.ngram,
        }
    source = open_records(
        input_file, config, seed=FLAGS.random_seed, **masking, **_record_settings()
    )
    eval_spec = None
    if FLAGS.do_eval:
        if FLAGS.input_file:
            check_held_out(FLAGS.input_file, FLAGS.eval_input_file)
        held_out = open_records(FLAGS.eval_input_file, config, **_record_settings())
        steps = min(FLAGS.max_eval_steps, held_out.num_batches(FLAGS.eval_batch_size))
        examples = min(steps * FLAGS.eval_batch_size, held_out.num_examples)
        eval_spec = EvalSpec(
            held_out.eval_input_fn,
            FLAGS.eval_every_steps,
            steps,
            fingerprint=f"{held_out.fingerprint}-{examples}",
        )
    task = PretrainingTask(config, source, FLAGS.sop_weight, settings.neighbor_attention)
    estimator = Estimator(task, run_config)
    if FLAGS.do_train:
        shallow = ""
        if layers := run_config.shallow_layers:
            shallow = f" (layers in the first {run_config.num_shallow_steps:,}: {layers})"
        print(
            f"Pretraining on {source.num_examples:,} examples: {settings.num_train_steps:,} steps "
            f"of {run_config.train_batch_size}{shallow}, {run_config.optimizer}, peak learning "
            f"rate {run_config.learning_rate:.3g}."
        )
        estimator.train_and_evaluate(
            TrainSpec.of(source, settings.num_train_steps, FLAGS.time_budget), eval_spec
        )
    if FLAGS.do_eval:
        results = estimator.evaluate(eval_spec)
        print_metrics(results)
        if note := constant_answer_note(results, task.constant_answers):
            print(note)
        write_results(FLAGS.output_dir, results, estimator.chief)


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags, check_flags=_check_flags)


if __name__ == "__main__":
    main()
