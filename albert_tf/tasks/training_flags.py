# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of all runners, and the RunConfig that they define."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence

from absl import flags

from albert_tf.cli.auto_flags import define_auto
from albert_tf.cli.flag_modes import note_unused_flags, refuse_flags
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.optimization import OPTIMIZERS
from albert_tf.pretrained import DEFAULT, NONE
from albert_tf.pretrained.locate import NAMES, check_model
from albert_tf.training.specs import (
    MAX_SEED,
    ON_DIVERGENCE,
    PRECISIONS,
    STRATEGIES,
    WARN,
    RunConfig,
    check_train_batch,
)

FLAGS = flags.FLAGS
#: Flags that only training reads.
TRAINING_ONLY = (
    "train_batch_size",
    "gradient_accumulation_steps",
    "recompute",
    "optimizer",
    "bias_correction",
    "weight_decay_rate",
    "save_checkpoints_steps",
    "keep_checkpoint_max",
    "log_every_steps",
    "max_nonfinite_steps",
    "on_divergence",
)
#: Flags that only evaluations during training read.
_EVALUATION_DURING_TRAINING = ("eval_every_steps", "early_stopping_evals")
_TPU_ONLY = ("tpu_name", "tpu_zone", "gcp_project")


def define_training_flags(
    *,
    train_batch_size: int,
    eval_batch_size: int,
    optimizer: str,
    save_checkpoints_steps: int,
    without_init: str,
) -> None:
    """Defines the flags of all runners.

    The arguments are the runner's own defaults; `without_init` describes what it does without
    --init_checkpoint.
    """
    define_path(
        "output_dir", None, "Folder for checkpoints, metrics and results. If it holds a run with "
        "the same settings, it is resumed; a run with other settings is an error.",
        check=files.check_output_folder,
    )  # fmt: skip
    define_path(
        "init_checkpoint", None, "Weights to start from: the output directory of another run (its "
        "best weights), the name of a checkpoint without .index, a folder or archive (.tar.gz, "
        f".zip) of the TF1 release, a Hugging Face folder, a SavedModel of TF-Hub, {NAMES}, or "
        f"that of a bundled model ({DEFAULT}); {NONE} for random weights. A file or folder takes "
        f"precedence over a name. {without_init}",
        check=check_model, when=_starts_anew
    )  # fmt: skip
    flags.DEFINE_alias("albert_hub_module_handle", "init_checkpoint")
    flags.DEFINE_bool("do_train", True, "Train.")
    flags.DEFINE_bool("do_eval", False, "Evaluate, during training and at the end.")
    flags.DEFINE_integer(
        "train_batch_size", train_batch_size, "Examples per optimizer step, over all devices.", 1
    )
    flags.DEFINE_integer("eval_batch_size", eval_batch_size, "Examples per evaluation batch.", 1)
    flags.DEFINE_integer(
        "gradient_accumulation_steps", 1, "Split each training batch into this number of parts and "
        "process them one after the other: less memory, the same result.", 1
    )  # fmt: skip
    flags.DEFINE_bool(
        "recompute", False, "Keep only the output of each layer and compute the rest again in the "
        "backward pass: much less memory, the same result, steps up to a third longer."
    )  # fmt: skip
    flags.DEFINE_enum(
        "optimizer",
        optimizer,
        OPTIMIZERS,
        "The releases use lamb for pretraining and adamw for fine-tuning.",
    )
    flags.DEFINE_bool(
        "bias_correction", False, "Correct the bias of the moments, as in You et al. (2020) but "
        "not in the ALBERT release."
    )  # fmt: skip
    flags.DEFINE_float(
        "weight_decay_rate", 0.01, "Weight decay, except for LayerNorm and biases.", 0
    )
    flags.DEFINE_enum(
        "precision", "float32", PRECISIONS, "mixed_bfloat16 computes in bfloat16 and keeps weights "
        "in float32: faster on TPUs and on CPUs and GPUs with bfloat16 units. "
        "mixed_float16 is for GPUs without them, such as V100 and T4; it scales the loss so that "
        "small gradients do not vanish. auto: mixed_bfloat16 or else mixed_float16 on devices with "
        "units for it, float32 elsewhere; a resumed run keeps its precision."
    )  # fmt: skip
    define_auto(
        "jit_compile", "Compile the model with XLA: true, false, or auto, which does so on one GPU "
        "if all batches have one length, as in pretraining and with --pad_to_max. TPUs always do."
    )  # fmt: skip
    flags.DEFINE_integer(
        "random_seed", 12345, "Seed of initial weights, dropout and data order; at most 2³¹ − 1.",
        0, MAX_SEED,
    )  # fmt: skip
    flags.DEFINE_integer(
        "steps_per_loop", 1000, "Maximum number of steps that run on the device before control "
        "returns to the host; fewer if steps are slow, so that progress is shown.", 1
    )  # fmt: skip
    flags.DEFINE_integer(
        "save_checkpoints_steps", save_checkpoints_steps, "Steps between checkpoints.", 1
    )
    flags.DEFINE_integer(
        "keep_checkpoint_max", 5, "Number of checkpoints to keep, besides the best one.", 1
    )
    flags.DEFINE_integer("log_every_steps", 100, "Steps between entries of metrics.jsonl.", 1)
    flags.DEFINE_integer(
        "max_nonfinite_steps", 10, "A step whose loss or gradient is not finite is skipped. After "
        "this number of skipped steps in a row the run has diverged and stops.", 1
    )  # fmt: skip
    flags.DEFINE_enum(
        "on_divergence", WARN, ON_DIVERGENCE, "What to do if the mean loss of a window of steps is "
        "more than halfway back from its best to its first value. warn: print where and advice, "
        "once. stop: exit with an error that names the last good checkpoint."
    )  # fmt: skip
    flags.DEFINE_integer(
        "early_stopping_evals", 0, "Stop after this number of evaluations without improvement; "
        "0: never.", 0
    )  # fmt: skip
    flags.DEFINE_enum(
        "strategy", "default", STRATEGIES, "default: one device; mirrored: all GPUs of this "
        "machine, at least two; multi_worker: the machines in TF_CONFIG; tpu: a Cloud TPU."
    )  # fmt: skip
    flags.DEFINE_bool("use_tpu", False, "The same as --strategy=tpu.")
    flags.DEFINE_string(
        "tpu_name", None, "Name or grpc:// address of the Cloud TPU; local: the one attached to "
        "this machine. Default: the environment's TPU_NAME, else local.",
    )  # fmt: skip
    flags.DEFINE_string("tpu_zone", None, "Zone of the Cloud TPU; default: this machine's.")
    flags.DEFINE_string("gcp_project", None, "Project of the Cloud TPU; default: this machine's.")


def check_modes(data_flags: Mapping[str, str], training_only: Sequence[str] = ()) -> None:
    """Refuses flags that contradict each other, and prints those that have no effect.

    Args:
      data_flags: data flags by action flag, such as "train_file" by "do_train".
      training_only: flags of this runner that only training reads, besides TRAINING_ONLY.

    Raises:
      AlbertError: flags contradict each other.
    """
    if FLAGS.use_tpu and FLAGS["strategy"].present and FLAGS.strategy != "tpu":
        raise AlbertError(f"Give --use_tpu or --strategy={FLAGS.strategy}, not both.")
    if not FLAGS.use_tpu and FLAGS.strategy != "tpu":
        refuse_flags(_TPU_ONLY, "they require --strategy=tpu.")
    if not FLAGS.do_train:
        names = [*TRAINING_ONLY, *training_only, *_EVALUATION_DURING_TRAINING]
        note_unused_flags(names, "do_train")
    elif not FLAGS.do_eval:
        refuse_flags(_EVALUATION_DURING_TRAINING, "evaluation needs --do_eval.")
    for action, name in data_flags.items():
        if not FLAGS[action].value:
            note_unused_flags([name], action)


def _starts_anew() -> bool:
    """Whether --init_checkpoint will be read; a resumed run does not read it."""
    return FLAGS.do_train and not (FLAGS.output_dir and files.exists(FLAGS.output_dir))


def check_run(config: RunConfig, batch_size_known: bool = True) -> None:
    """Checks the settings of a run that do not depend on its devices.

    Args:
      config: of the run.
      batch_size_known: whether its training batch size is final.

    Raises:
      AlbertError: its batches cannot be split evenly.
    """
    if FLAGS.do_train and batch_size_known:
        check_train_batch(config, replicas=1)


def lock_for_training(*below: str) -> contextlib.AbstractContextManager[None]:
    """Joins the cluster, if there is one, and locks --output_dir if the run trains.

    Runners hold the lock while they read data and write files. It imports TensorFlow.

    Args:
      *below: names of folders in --output_dir that the run also trains in.

    Raises:
      AlbertError: another process trains there; see `output_lock`.
    """
    from albert_tf.training.cluster import output_lock

    folders = [FLAGS.output_dir, *(os.path.join(FLAGS.output_dir, name) for name in below)]
    return output_lock(FLAGS.strategy, *(folders if FLAGS.do_train else []))


def run_settings() -> dict[str, object]:
    """Returns the fields of RunConfig from the parsed flags."""
    fields = {
        field.name: FLAGS[field.name].value
        for field in dataclasses.fields(RunConfig)
        if field.name in FLAGS
    }
    fields["seed"] = FLAGS.random_seed
    fields["output_dir"] = FLAGS.output_dir or ""
    if FLAGS.use_tpu:
        fields["strategy"] = "tpu"
    if fields["init_checkpoint"] == NONE:
        fields["init_checkpoint"] = None
    return fields
