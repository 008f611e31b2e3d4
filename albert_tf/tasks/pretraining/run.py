# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrains and evaluates."""

from __future__ import annotations

from albert_tf.errors import AlbertError
from albert_tf.io.log import log
from albert_tf.tasks.pretraining.config import PretrainingConfig
from albert_tf.tasks.pretraining.data import check_held_out, open_records
from albert_tf.tasks.pretraining.task import PretrainingTask, model_config
from albert_tf.tasks.pretraining.time_budget import planned
from albert_tf.training.cluster import output_lock
from albert_tf.training.estimator import Estimator
from albert_tf.training.monitors import print_metrics, write_results
from albert_tf.training.specs import EvalSpec, TrainSpec
from albert_tf.weights.load import check_architecture


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
    with output_lock(config.strategy, *([config.output_dir] if train else [])):
        if train and config.time_budget:
            config = planned(config)
        return _run(config, train, evaluate)


def _run(config: PretrainingConfig, train: bool, evaluate: bool) -> dict[str, float]:
    input_file = config.input_file or config.eval_input_file  # To evaluate, the latter is enough.
    model = model_config(config.albert_config_file, input_file, config.init_checkpoint)
    if train:
        model.with_layers(config.shallow_layers)  # Its errors come before anything is written.
    if config.init_checkpoint:
        check_architecture(model, config.init_checkpoint)
    sizes = {
        "max_seq_length": config.max_seq_length,
        "max_predictions_per_seq": config.max_predictions_per_seq,
    }
    masks = {"masked_lm_prob": config.masked_lm_prob, "ngram": config.ngram} if train else {}
    source = open_records(input_file, model, seed=config.seed, **masks, **sizes)
    eval_spec = None
    if evaluate:
        if config.input_file:
            check_held_out(config.input_file, config.eval_input_file)
        held_out = open_records(config.eval_input_file, model, **sizes)
        steps = min(config.max_eval_steps, held_out.num_batches(config.eval_batch_size))
        examples = min(steps * config.eval_batch_size, held_out.num_examples)
        eval_spec = EvalSpec(
            held_out.eval_input_fn,
            config.eval_every_steps,
            steps,
            fingerprint=f"{held_out.fingerprint}-{examples}",
        )
    task = PretrainingTask(model, source, config.sop_weight, config.neighbor_attention)
    estimator = Estimator(task, config)
    if train:
        shallow = ""
        if layers := config.shallow_layers:
            shallow = f" (layers in the first {config.num_shallow_steps:,}: {layers})"
        log.info(
            f"Pretraining on {source.num_examples:,} examples: {config.num_train_steps:,} steps "
            f"of {config.train_batch_size}{shallow}, {config.optimizer}, peak learning rate "
            f"{config.learning_rate:.3g}."
        )
        estimator.train_and_evaluate(TrainSpec.of(source, config.num_train_steps), eval_spec)
    if eval_spec is None:
        return {}
    results = estimator.evaluate(eval_spec)
    print_metrics(results)
    if note := task.constant_answer_note(results):
        log.info(note)
    write_results(estimator.folder, results, estimator.chief)
    return results
