# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrains and evaluates."""

from __future__ import annotations

from albert_tf.errors import AlbertError
from albert_tf.io.log import log
from albert_tf.tasks.pretraining.config import PretrainingConfig
from albert_tf.tasks.pretraining.data import check_held_out, open_records
from albert_tf.tasks.pretraining.task import PretrainingTask, open_inputs
from albert_tf.tasks.pretraining.time_budget import planned
from albert_tf.tasks.runner import report
from albert_tf.training.cluster import output_lock
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import EvalSpec, TrainSpec


def pretrain(
    config: PretrainingConfig, train: bool = True, evaluate: bool = False
) -> dict[str, float]:
    """Pretrains a model and evaluates it; the same call resumes a run.

    Args:
      config: the settings.
      train: whether to train on `input_file`.
      evaluate: whether to evaluate on `eval_input_file`, during training and at the end.

    Returns:
      The metrics of the evaluation at the end; empty without.

    Raises:
      AlbertError: records or configuration are missing or do not fit, the settings are impossible,
        or another process trains in the output directory.
    """
    if evaluate and not config.eval_input_file:
        raise AlbertError("`do_eval` needs `eval_input_file` with held-out records.")
    if train and not config.input_file:
        raise AlbertError("`do_train` needs `input_file` with training records.")
    if evaluate and config.input_file:
        check_held_out(config.input_file, config.eval_input_file)
    with output_lock(config.strategy, *([config.output_dir] if train else [])):
        if train and config.time_budget:
            config = planned(config)
        model, source = open_inputs(config, train)
        if train:
            model.with_layers(config.shallow_layers)  # Its errors come before anything is written.
        eval_spec, notes = None, {}
        if evaluate:
            size = config.eval_batch_size
            held_out = open_records(
                config.eval_input_file, model, max_seq_length=config.max_seq_length, held_out=True
            )
            steps = min(config.max_eval_steps, held_out.num_batches(size))
            available = held_out.num_examples
            if (examples := min(steps * size, available)) < available:
                log.info(
                    f"Evaluating on the first {examples:,} of {available:,} held-out examples: "
                    f"max_eval_steps={config.max_eval_steps:,}."
                )
                notes["evaluated_share"] = examples / available
            fingerprint, every = f"{held_out.fingerprint}-{examples}", config.eval_every_steps
            eval_spec = EvalSpec(held_out.eval_input_fn, every, steps, fingerprint=fingerprint)
        task = PretrainingTask(model, source, config.neighbor_attention)
        estimator = Estimator(task, config)
        if train:
            steps, shallow = config.num_train_steps, ""
            if layers := config.shallow_layers:
                shallow = f" (layers in the first {config.num_shallow_steps:,}: {layers})"
            log.info(
                f"Pretraining on {source.num_examples:,} examples: {steps:,} steps of "
                f"{config.train_batch_size}{shallow}, {config.optimizer}, peak learning rate "
                f"{config.learning_rate:.3g}."
            )
            estimator.train_and_evaluate(TrainSpec.of(source, steps), eval_spec)
        return report(estimator, [eval_spec], estimator.folder, notes) if eval_spec else {}
