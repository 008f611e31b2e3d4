# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Training data for `pretrain`, and checkpoints of the states that it brings back."""

from __future__ import annotations

import itertools
import os

import numpy as np
from absl import flags

from albert_tf.cli.path_flags import check_records, define_path, define_paths
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from benchmarks.gpu_step.emit import training_batches
from benchmarks.gpu_step.pretrain import FINGERPRINT
from benchmarks.gpu_step.program import SLOT, Program, load_state, save_batches

FLAGS = flags.FLAGS


def _define_common_flags() -> None:
    define_path("program", None, "Folder of one program that `emit` wrote.", required=True)
    define_paths(
        "input_file", None, "Pretraining records, as run_pretraining.py takes them.",
        check=check_records, required=True
    )  # fmt: skip


def define_data_flags() -> None:
    """Defines the flags of `data`."""
    _define_common_flags()
    define_path("output", None, "The .npz file to write.", required=True)
    flags.DEFINE_integer("first_step", 0, "Step of the first batch.", 0)
    flags.DEFINE_integer("steps", 1000, "Batches to write.", 1)


def write_data() -> None:
    """Writes the batches that run_pretraining.py would train on, for `pretrain`."""
    from albert_tf.tasks.pretraining.data import open_records

    program = Program.load(FLAGS.program)
    source = open_records(FLAGS.input_file, AlbertConfig.from_dict(program.config))
    batches = training_batches(source, program.step["rows"], FLAGS.first_step)
    save_batches(
        FLAGS.output,
        list(itertools.islice(batches, FLAGS.steps)),
        first_step=np.array(FLAGS.first_step),
        **{FINGERPRINT: np.array(source.fingerprint)},
    )
    size = os.path.getsize(FLAGS.output) / 2**20
    print(f"{FLAGS.output}: {FLAGS.steps} batches, {size:.1f} MiB")


def define_checkpoint_flags() -> None:
    """Defines the flags of `checkpoint`."""
    _define_common_flags()
    define_path("state", None, "state-<step>.npz that `pretrain` wrote.", required=True)
    define_path("output_dir", None, "Folder for the run; must be new or empty.", required=True)


def write_checkpoint() -> None:
    """Writes a state as a run of run_pretraining.py, which can go on with it.

    Raises:
      AlbertError: the state is of other data or another model, or the folder is in use.
    """
    from albert_tf.tasks.pretraining.data import open_records
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.training.estimator import Estimator
    from albert_tf.training.run import TrainingRun
    from albert_tf.training.specs import RunConfig, TrainSpec

    folder = FLAGS.output_dir
    if os.path.isdir(folder) and os.listdir(folder):
        raise AlbertError(f"{folder} is not empty; give another --output_dir.")
    program = Program.load(FLAGS.program)
    config = AlbertConfig.from_dict(program.config)
    source = open_records(FLAGS.input_file, config)
    state = load_state(FLAGS.state)
    if str(state.pop(FINGERPRINT)) != source.fingerprint:
        raise AlbertError(f"{FLAGS.state} was trained on other data than {FLAGS.input_file}.")
    rates = dict(program.schedule)
    steps = rates.pop("num_train_steps")
    run_config = RunConfig(
        folder,
        train_batch_size=program.step["rows"],
        precision=program.step["precision"],
        gradient_accumulation_steps=program.step["micro_batches"],
        **rates,
    )
    estimator = Estimator(PretrainingTask(config, source), run_config)
    run = TrainingRun(estimator, TrainSpec.of(source, steps), None)
    named = {**estimator.model.named_weights(), **run.optimizer.named_slots()}
    lacking = sorted(set(named) - set(state))
    if lacking and lacking != sorted(parameter.name for parameter in program.of_kind(SLOT)):
        raise AlbertError(f"{FLAGS.state} lacks {lacking[0]}.")
    for name in set(named) & set(state):
        named[name].assign(state[name])
    step = int(state["step"])
    run.optimizer.iterations.assign(step)
    run.store.begin()
    run.task.save_files(folder)
    run.identity.write(folder)
    print(run.store.save(step))
    if lacking:
        print("The state has no slots; in the checkpoint they are zero.")
