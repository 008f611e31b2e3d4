# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: one run or one a seed, evaluated; keeps track of the best one."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.errors import DivergedError
from albert_tf.io import files
from albert_tf.keras2 import keras
from albert_tf.tasks.base import ExampleSet, FineTuningTask
from albert_tf.tasks.fine_tune_config import FineTuneConfig
from albert_tf.training.estimator import Estimator
from albert_tf.training.output_lock import output_lock
from albert_tf.training.results import print_metrics, write_results
from albert_tf.training.specs import EvalSpec, RunConfig, TrainSpec
from albert_tf.training.strategy import highest
from albert_tf.weights.model_folders import SEEDS_FILE, check_seeds, model_folder

#: Writes the predictions for a data set into a folder, as `FineTuningTask.write_predictions`.
Writer = Callable[[ExampleSet, Mapping[str, np.ndarray], str], None]


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
    task: FineTuningTask,
    examples: Examples,
    config: FineTuneConfig,
    write_predictions: Writer | None = None,
) -> dict[str, float]:
    """Trains, evaluates and predicts, as far as there are examples for it.

    In a cluster all processes have to call it; the chief writes the files.

    Args:
      task: the task.
      examples: what to read.
      config: how; the model is, or will be, in its output directory.
      write_predictions: writes those for a data set; None: `task.write_predictions`.

    Returns:
      The metrics that `report` gives, empty without evaluation.
    """
    options = {"cache_dir": config.cache_dir, "pad_to_max": config.pad_to_max}
    # Everything is tokenized before anything is trained, so that errors show at once.
    evaluated = [task.open_examples(x, name, **options) for name, x in examples.evaluate.items()]
    predicted = [
        task.open_examples(new, name, labelled=False, **options)
        for name, new in examples.predict.items()
    ]
    batch_size = config.run.eval_batch_size
    eval_specs = [data.eval_spec(batch_size, config.eval_every_steps) for data in evaluated]
    if examples.train:
        seed = config.run.seed
        data = task.open_examples(examples.train, "train", train_seed=seed, **options)
        estimator = fine_tune(task, config, data, eval_specs)
    elif eval_specs or predicted:
        estimator = open_trained(task, config.training_run(0))
    results = report(estimator, eval_specs, config.output_dir) if eval_specs else {}
    write = write_predictions or task.write_predictions
    for data in predicted:
        spec = data.eval_spec(batch_size)
        outputs = estimator.predict(spec.input_fn, max_steps=spec.max_steps)
        if estimator.chief:
            write(data, outputs, config.output_dir)
    return results


def fine_tune(
    task: FineTuningTask,
    config: FineTuneConfig,
    data: ExampleSet,
    eval_specs: Sequence[EvalSpec] = (),
) -> Estimator:
    """Trains; with several seeds, trains and evaluates the best weights for each.

    During training the first of `eval_specs` is evaluated, if its `every_steps` says so, and picks
    the best weights by the task's `best_metric`; `report` then evaluates all of them. With several
    seeds, run i has the seed `config.run.seed + i` and the folder seed-<seed>, and seeds.json tells
    which is the best. A seed that diverges has the value null there, and the others go on.

    Args:
      task: what is trained.
      config: how; its output directory holds everything.
      data: the training examples.
      eval_specs: what to evaluate on.

    Returns:
      The Estimator of the run, or of the best one.

    Raises:
      AlbertError: several seeds without anything to choose by; another process trains there.
      DivergedError: the training has diverged, that of all seeds.
    """
    max_steps = config.steps(data.source.num_examples)
    run = config.training_run(max_steps)
    print(
        f"Fine-tuning for {max_steps:,} steps of {run.train_batch_size}, "
        f"{run.num_warmup_steps:,} warm-up, learning rate {run.learning_rate:g}."
    )
    train_spec = TrainSpec.of(data.source, max_steps)
    if config.num_seeds == 1:
        estimator = Estimator(task, run)
        _train(estimator, train_spec, eval_specs)
        return estimator
    check_seeds(config.num_seeds, bool(eval_specs))
    runs = {}
    for seed in range(run.seed, run.seed + config.num_seeds):
        folder = os.path.join(run.output_dir, f"seed-{seed}")
        source = data.source.reseeded(seed)
        runs[f"seed-{seed}"] = (
            dataclasses.replace(run, seed=seed, output_dir=folder),
            TrainSpec.of(source, max_steps),
        )
    folders = [config.output_dir for config, _ in runs.values()]
    with output_lock(run.strategy, run.output_dir, *folders):
        _fine_tune_seeds(task, run.output_dir, runs, eval_specs)
        return open_trained(task, run)


def _fine_tune_seeds(
    task: FineTuningTask,
    output_dir: str,
    runs: Mapping[str, tuple[RunConfig, TrainSpec]],
    eval_specs: Sequence[EvalSpec],
) -> None:
    """Trains and evaluates each seed in its folder, and writes which is the best."""
    files.remove_temporary(output_dir)
    results: dict[str, dict[str, float]] = {}
    values: dict[str, float | None] = {}
    for name, (run, train_spec) in runs.items():
        print(f"Seed {run.seed} ({len(values) + 1} of {len(runs)}):")
        keras.backend.clear_session()
        estimator = Estimator(task, run)
        values[name] = None
        try:
            _train(estimator, train_spec, eval_specs)
            result = _metrics(_evaluate(estimator, eval_specs))
            if math.isfinite(result[task.best_metric]):
                results[name], values[name] = result, result[task.best_metric]
        except DivergedError as error:
            print(error)
    if not results:
        raise DivergedError(f"The training of all {len(runs)} seeds has diverged, see above.")
    sign = 1 if task.best_metric_larger_is_better else -1
    best = max(results, key=lambda name: sign * values[name])
    summary = {"metric": task.best_metric, "values": values, "best": best}
    if estimator.chief:
        files.write_json(os.path.join(output_dir, SEEDS_FILE), summary)
    highest(estimator.strategy)  # It is read again at once.
    print(_seeds_line(task, values, best, results[best]))


def _train(estimator: Estimator, train_spec: TrainSpec, eval_specs: Sequence[EvalSpec]) -> None:
    # With one evaluation only, at the end, there is nothing to choose from: `report` does it.
    chooser = eval_specs[0] if eval_specs and eval_specs[0].every_steps else None
    estimator.train_and_evaluate(train_spec, chooser)


def open_trained(task: FineTuningTask, run: RunConfig) -> Estimator:
    """The Estimator of the model in an output directory, or of its best seed."""
    folder = model_folder(run.output_dir)
    return Estimator(task, dataclasses.replace(run, output_dir=folder))


class _Evaluated(NamedTuple):
    """What the evaluation of a data set gave."""

    data: ExampleSet
    outputs: Mapping[str, np.ndarray]
    metrics: dict[str, float]


def _evaluate(estimator: Estimator, eval_specs: Sequence[EvalSpec]) -> list[_Evaluated]:
    """Evaluates the best weights of the Estimator's run."""
    estimator.load()
    outputs = [estimator.outputs(spec) for spec in eval_specs]
    return [
        _Evaluated(spec.examples, found, estimator.metrics(spec, found))
        for spec, found in zip(eval_specs, outputs)
    ]


def _metrics(evaluated: Sequence[_Evaluated]) -> dict[str, float]:
    """Metrics of all data sets: of the first by their names, of others with the set's before."""
    first, *others = evaluated
    named = {f"{x.data.name}_{key}": value for x in others for key, value in x.metrics.items()}
    return {**first.metrics, **named}


def report(
    estimator: Estimator, eval_specs: Sequence[EvalSpec], output_dir: str
) -> dict[str, float]:
    """Evaluates, prints the metrics and writes eval_results.json and what the task adds to it.

    Returns:
      The metrics of the best weights of the Estimator's run. Those of the first data set go by
      their own names, those of others by <name of the data set>_<name of the metric>.

    Raises:
      DivergedError: a metric is not finite.
    """
    evaluated = _evaluate(estimator, eval_specs)
    results = _metrics(evaluated)
    print_metrics(results)
    for data, outputs, metrics in evaluated:
        if estimator.chief and all(map(math.isfinite, metrics.values())):
            estimator.task.write_evaluation(data, outputs, metrics, output_dir)
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
