# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Text for `pretrain`, and checkpoints of the states that it brings back."""

from __future__ import annotations

import os

from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.data_prep.documents import read_blocks, tokenize
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.tokenization.tokenizer import Tokenizer
from benchmarks.gpu_step.program import FINGERPRINT, SLOT, Program, load_state
from benchmarks.gpu_step.text import save_text

FLAGS = flags.FLAGS


def define_text_flags() -> None:
    """Defines the flags of `text`."""
    define_path(
        "input_file", None, "Text files: one sentence a line, a blank line between documents.",
        required=True
    )  # fmt: skip
    define_path(
        "spm_model_file", None, "SentencePiece model, or folder or name of a model that has one.",
        required=True
    )  # fmt: skip
    define_path("output", None, "The .npz.xz file to write.", required=True)


def write_text() -> None:
    """Writes tokenized documents, from which `pretrain` builds its own batches."""
    tokenizer = Tokenizer.from_file(FLAGS.spm_model_file)
    paths = files.expand_globs(FLAGS.input_file)
    files.check_output(FLAGS.output, paths, overwrite=True)
    with Progress("tokenizing", total_bytes(paths)) as progress:
        blocks = read_blocks(paths, progress.update)
        documents = [document for _, lines in blocks for document in tokenize(lines, tokenizer)]
    print(f"{len(documents):,} documents; compressing them.")
    save_text(FLAGS.output, documents, tokenizer)
    print(f"{FLAGS.output}: {os.path.getsize(FLAGS.output) / 2**20:.1f} MiB")


def define_checkpoint_flags() -> None:
    """Defines the flags of `checkpoint`."""
    define_path("program", None, "Folder of one program that `emit` wrote.", required=True)
    define_path(
        "input_file", None, "Pretraining records, which further training would read.", required=True
    )  # fmt: skip
    define_path("state", None, "state-<step>.npz that `pretrain` wrote.", required=True)
    define_path(
        "metrics", None, "metrics.jsonl of `pretrain`, or of several runs in order: becomes the "
        "run's log."
    )  # fmt: skip
    define_path("output_dir", None, "Folder for the run; must be new or empty.", required=True)


def write_checkpoint() -> None:
    """Writes a state as a run of run_pretraining.py, which can go on with it.

    Raises:
      AlbertError: the state is of another model, or the folder is in use.
    """
    from albert_tf.tasks.pretraining.data import open_records
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.training.estimator import Estimator
    from albert_tf.training.run import TrainingRun
    from albert_tf.training.specs import RunConfig, TrainSpec
    from albert_tf.weights.run_folder import METRICS_FILE

    folder = FLAGS.output_dir
    if os.path.isdir(folder) and os.listdir(folder):
        raise AlbertError(f"{folder} is not empty; give another --output_dir.")
    program = Program.load(FLAGS.program)
    config = AlbertConfig.from_dict(program.config)
    source = open_records(FLAGS.input_file, config)
    state = load_state(FLAGS.state)
    del state[FINGERPRINT]
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
    named = {**estimator.model.named_weights(), **run.optimizer.named_slots}
    lacking = sorted(set(named) - set(state))
    if lacking and lacking != sorted(parameter.name for parameter in program.of_kind(SLOT)):
        raise AlbertError(f"{FLAGS.state} lacks {lacking[0]}.")
    for name in set(named) & set(state):
        named[name].assign(state[name])
    step = int(state["step"])
    run.optimizer.iterations.assign(step)
    run.folder.claim(run.record, run.task.save_files)
    run.store.save(step)
    print(*run.folder.checkpoints().values())
    if FLAGS.metrics:
        logs = [files.read_bytes(path) for path in files.expand_globs(FLAGS.metrics)]
        files.write_bytes(os.path.join(folder, METRICS_FILE), b"".join(logs))
    if lacking:
        print("The state has no slots; in the checkpoint they are zero.")
