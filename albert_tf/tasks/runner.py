# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: one run or one a seed, evaluated, the best one kept in mind."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.data.pipeline import RecordSource
from albert_tf.errors import DivergedError
from albert_tf.io import files
from albert_tf.keras2 import keras
from albert_tf.tasks.base import ExampleTask, FineTuningTask
from albert_tf.tasks.model_folders import SEEDS_FILE, check_seeds, model_folder
from albert_tf.training.estimator import Estimator
from albert_tf.training.output_lock import output_lock
from albert_tf.training.results import write_results
from albert_tf.training.specs import EvalSpec, RunConfig, TrainSpec
from albert_tf.training.strategy import highest


@dataclasses.dataclass(frozen=True)
class Examples:
    """What a run reads; what is empty is not done.

    Attributes:
      train: to train on.
      evaluate: labelled examples by the name of the data set; the first one picks the best weights.
      predict: examples by the name of the data set.
    """

    train: Sequence[Any] = ()
    evaluate: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    predict: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)


def run(
    task: ExampleTask,
    examples: Examples,
    config: RunConfig,
    cache_dir: str,
    *,
    max_steps: int,
    eval_every_steps: int | None = None,
    num_seeds: int = 1,
    pad_to_max: bool = False,
) -> tuple[dict[str, float], dict[str, dict[str, np.ndarray]]]:
    """Trains, evaluates and predicts, as far as there are examples for it.

    In a cluster all processes have to call it, and one of them, the chief, is there to write files.

    Args:
      task: the task.
      examples: what to read.
      config: how; the model is, or will be, in its output directory.
      cache_dir: where records are kept.
      max_steps: training steps.
      eval_every_steps: steps between evaluations while training; None: one at the end.
      num_seeds: see `fine_tune`.
      pad_to_max: pad all batches to the longest sequence allowed.

    Returns:
      The metrics that `report` gives, empty without evaluation; and for each data set to predict
      the outputs of the task's `predict`, [examples, ...]. Only the chief is given these.
    """
    options = {"cache_dir": cache_dir, "pad_to_max": pad_to_max}
    # All is tokenized before anything is trained, so that errors show at once.
    eval_specs = []
    for name, held_out in examples.evaluate.items():
        source = task.open_examples(held_out, name, **options)
        batches = source.num_batches(config.eval_batch_size)
        eval_specs.append(EvalSpec(source.eval_input_fn, eval_every_steps, batches, name))
    unseen = {
        name: task.open_examples(new, name, labelled=False, **options)
        for name, new in examples.predict.items()
    }
    if examples.train:
        source = task.open_examples(examples.train, "train", train_seed=config.seed, **options)
        print(
            f"Fine-tuning for {max_steps:,} steps of {config.train_batch_size}, "
            f"{config.num_warmup_steps:,} warm-up, learning rate {config.learning_rate:g}."
        )
        estimator = fine_tune(task, config, source, max_steps, eval_specs, num_seeds)
    else:
        estimator = open_trained(task, config)
    results = report(estimator, eval_specs, config.output_dir) if eval_specs else {}
    outputs = {}
    for name, source in unseen.items():
        batches = source.num_batches(config.eval_batch_size)
        outputs[name] = estimator.predict(source.eval_input_fn, max_steps=batches)
    return results, outputs if estimator.chief else {}


def fine_tune(
    task: FineTuningTask,
    config: RunConfig,
    source: RecordSource,
    max_steps: int,
    eval_specs: Sequence[EvalSpec] = (),
    num_seeds: int = 1,
) -> Estimator:
    """Trains; with several seeds, trains and evaluates the best weights for each.

    During training the first of `eval_specs` is evaluated, if its `every_steps` says so, and picks
    the best weights by the task's `best_metric`; `report` then evaluates all of them. With several
    seeds, run i has the seed `config.seed + i` and the folder seed-<seed>, and seeds.json tells
    which is the best. A seed that diverges has the value null there, and the others go on.

    Args:
      task: what is trained.
      config: how; its output directory holds everything.
      source: the training examples.
      max_steps: steps of each run.
      eval_specs: what to evaluate on.
      num_seeds: runs.

    Returns:
      The Estimator of the run, or of the best one.

    Raises:
      AlbertError: several seeds without anything to choose by; another process trains there.
      DivergedError: the training has diverged, that of all seeds.
    """
    if num_seeds == 1:
        estimator = Estimator(task, config)
        _train(estimator, source, max_steps, eval_specs)
        return estimator
    check_seeds(num_seeds, bool(eval_specs))
    folders = {
        seed: os.path.join(config.output_dir, f"seed-{seed}")
        for seed in range(config.seed, config.seed + num_seeds)
    }
    with output_lock(config.strategy, config.output_dir, *folders.values()):
        _fine_tune_seeds(task, config, source, max_steps, eval_specs, folders)
        return open_trained(task, config)


def _fine_tune_seeds(
    task: FineTuningTask,
    config: RunConfig,
    source: RecordSource,
    max_steps: int,
    eval_specs: Sequence[EvalSpec],
    folders: Mapping[int, str],
) -> None:
    """Trains and evaluates each seed in its folder, and writes which is the best."""
    files.remove_temporary(config.output_dir)
    results: dict[str, dict[str, float]] = {}
    values: dict[str, float | None] = {}
    for seed, folder in folders.items():
        name = os.path.basename(folder)
        print(f"Seed {seed} ({len(values) + 1} of {len(folders)}):")
        keras.backend.clear_session()
        estimator = Estimator(task, dataclasses.replace(config, seed=seed, output_dir=folder))
        values[name] = None
        try:
            _train(estimator, source.reseeded(seed), max_steps, eval_specs)
            result = evaluate(estimator, eval_specs)
            if math.isfinite(result[task.best_metric]):
                results[name], values[name] = result, result[task.best_metric]
        except DivergedError as error:
            print(error)
    if not results:
        raise DivergedError(f"The training of all {len(folders)} seeds has diverged, see above.")
    sign = 1 if task.best_metric_larger_is_better else -1
    best = max(results, key=lambda name: sign * values[name])
    summary = {"metric": task.best_metric, "values": values, "best": best}
    if estimator.chief:
        files.write_json(os.path.join(config.output_dir, SEEDS_FILE), summary)
    highest(estimator.strategy)  # It is read again at once.
    print(_seeds_line(task, values, best, results[best]))


def _train(
    estimator: Estimator, source: RecordSource, max_steps: int, eval_specs: Sequence[EvalSpec]
) -> None:
    train_spec = TrainSpec(source.train_input_fn, max_steps, source.fingerprint, source.description)
    # With one evaluation only, at the end, there is nothing to choose from: `report` does it.
    chooser = eval_specs[0] if eval_specs and eval_specs[0].every_steps else None
    estimator.train_and_evaluate(train_spec, chooser)


def open_trained(task: FineTuningTask, config: RunConfig) -> Estimator:
    """The Estimator of the model in an output directory, or of its best seed."""
    folder = model_folder(config.output_dir)
    return Estimator(task, dataclasses.replace(config, output_dir=folder))


def evaluate(estimator: Estimator, eval_specs: Sequence[EvalSpec]) -> dict[str, float]:
    """Metrics of the best weights of the Estimator's run.

    The metrics of the first data set go by their own names, those of others by
    <name of the data set>_<name of the metric>.
    """
    results = estimator.evaluate(eval_specs[0])
    for spec in eval_specs[1:]:
        for name, value in estimator.evaluate_now(spec).items():
            results[f"{spec.name}_{name}"] = value
    return results


def report(
    estimator: Estimator, eval_specs: Sequence[EvalSpec], output_dir: str
) -> dict[str, float]:
    """Evaluates, prints the metrics and writes eval_results.json into `output_dir`.

    Raises:
      DivergedError: a metric is not finite.
    """
    results = evaluate(estimator, eval_specs)
    print("\n".join(f"  {name:24} {value:.4f}" for name, value in results.items()))
    write_results(output_dir, results, estimator.chief)
    return results


def _seeds_line(
    task: FineTuningTask,
    values: Mapping[str, float | None],
    best: str,
    result: Mapping[str, float],
) -> str:
    """A line a seed, and one with median, best, spread and what a constant answer reaches."""
    baseline = result[task.baseline_metric] if task.baseline_metric else 0.0
    lines = [f"{task.best_metric} of {len(values)} seeds:"]
    lines += [
        f"  {name:12} {'diverged' if value is None else f'{value:.4f}'}"
        for name, value in values.items()
    ]
    ordered = sorted(value for value in values.values() if value is not None)
    lines.append(
        f"  median {statistics.median(ordered):.4f}, best {values[best]:.4f} ({best}), "
        f"spread {ordered[0]:.4f} to {ordered[-1]:.4f};"
    )
    lines.append(f"  a constant answer has {baseline:.4f}.")
    return "\n".join(lines)
