# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes, evaluates and predicts; trains with several seeds and keeps the best run."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import DivergedError
from albert_tf.io import files, removal
from albert_tf.io.log import log
from albert_tf.tasks.base import ExampleSet, FineTuningTask
from albert_tf.tasks.fine_tune_config import FineTuneConfig, check_seeds
from albert_tf.training.cluster import barrier, output_lock
from albert_tf.training.estimator import Estimator
from albert_tf.training.results import constant_answer_note, print_metrics, write_results
from albert_tf.training.specs import EvalSpec, RunConfig, TrainSpec
from albert_tf.weights.run_folder import BEST, BEST_RECORD, SEEDS_FILE, RunFolder

#: Writes the predictions for a data set to a folder; see `FineTuningTask.write_predictions`.
Writer = Callable[[ExampleSet, Mapping[str, np.ndarray], str], None]


@dataclasses.dataclass(frozen=True)
class Examples:
    """The examples of a run, which trains, evaluates or predicts if there are examples for it.

    Attributes:
      train: training examples.
      evaluate: labelled examples by data set; the first data set selects the best weights.
      predict: examples by data set.
    """

    train: Sequence[Any] = ()
    evaluate: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    predict: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls, train: Sequence[Any] = (), held_out: Sequence[Any] = (), unseen: Sequence[Any] = ()
    ) -> Examples:
        """Returns examples with one data set to evaluate, `eval`, and one to predict, `predict`.

        Args:
          train: training examples.
          held_out: labelled examples; empty: no evaluation.
          unseen: examples to predict; empty: no prediction.
        """
        evaluate = {"eval": held_out} if held_out else {}
        return cls(train, evaluate, {"predict": unseen} if unseen else {})


def run(
    task: FineTuningTask,
    examples: Examples,
    config: FineTuneConfig,
    write_predictions: Writer | None = None,
) -> dict[str, float]:
    """Trains, evaluates and predicts.

    In a cluster all processes must call it; the chief writes the files.

    Args:
      task: the task.
      examples: what to train on, evaluate and predict.
      config: the settings; the output directory holds the trained model, or will hold it.
      write_predictions: writes those for a data set; None: `task.write_predictions`.

    Returns:
      The metrics of `report`; empty without evaluation.

    Raises:
      AlbertError: see `fine_tune`; the output directory holds a run with one seed, and several are
        to be trained, or vice versa.
    """
    options = {"pad_to_max": config.pad_to_max, "few_lengths": config.jit_compile is True}
    if examples.train:
        RunFolder(config.output_dir).check_same_seeds(_seed_names(config))
    # All examples are tokenized before the training, so that errors show at once.
    evaluated = [task.open_examples(x, name, **options) for name, x in examples.evaluate.items()]
    predicted = [
        task.open_examples(x, name, labelled=False, **options)
        for name, x in examples.predict.items()
    ]
    batch_size = config.eval_batch_size
    eval_specs = [data.eval_spec(batch_size, config.eval_every_steps) for data in evaluated]
    if examples.train:
        data = task.open_examples(examples.train, "train", training=True, **options)
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
    """Trains with one seed; or with several, and evaluates each run.

    If the first of `eval_specs` has `every_steps`, it is evaluated during training and selects the
    best weights by the task's `best_metric`. With several seeds, run i has the seed
    `config.seed + i` and the folder seed-<seed>; seeds.json holds the value of each run and
    names the best one. A run that diverges has the value null, and the others continue. A resumed
    run neither trains nor evaluates the finished seeds again.

    Args:
      task: the task.
      config: the settings.
      data: the training examples.
      eval_specs: the data sets to evaluate.

    Returns:
      The Estimator of the run, or of the best one.

    Raises:
      AlbertError: there are several seeds but no evaluation, or another process trains in the
        output directory.
      DivergedError: the training has diverged, with several seeds each time.
    """
    max_steps = config.steps(data.source.num_examples)
    run = config.training_run(max_steps)
    log.info(
        f"Fine-tuning for {max_steps:,} steps of {run.train_batch_size}, "
        f"{run.num_warmup_steps:,} warm-up, learning rate {run.learning_rate:g}."
    )
    if config.num_seeds == 1:
        estimator = Estimator(task, run)
        _train(estimator, TrainSpec.of(data.source.reseeded(run.seed), max_steps), eval_specs)
        return estimator
    check_seeds(config.num_seeds, bool(eval_specs))
    runs = {}
    for seed, name in enumerate(_seed_names(config), start=run.seed):
        folder = os.path.join(run.output_dir, name)
        own_run = dataclasses.replace(run, seed=seed, num_seeds=1, output_dir=folder)
        runs[name] = own_run, TrainSpec.of(data.source.reseeded(seed), max_steps)
    folders = [own_run.output_dir for own_run, _ in runs.values()]
    owner = removal.owner_id("seeds", *map(os.path.abspath, folders))
    with output_lock(run.strategy, run.output_dir, *folders):
        with removal.own_temporaries(owner, run.output_dir):
            _fine_tune_seeds(task, run.output_dir, runs, eval_specs[0])
        return open_trained(task, run)


def _seed_names(config: FineTuneConfig) -> list[str]:
    """Returns the names of the runs with several seeds; none for a run with one seed."""
    first, number = config.seed, config.num_seeds
    return [f"seed-{seed}" for seed in range(first, first + number)] if number > 1 else []


def _fine_tune_seeds(
    task: FineTuningTask,
    output_dir: str,
    runs: Mapping[str, tuple[RunConfig, TrainSpec]],
    eval_spec: EvalSpec,
) -> None:
    """Trains and evaluates each run in its folder, and writes seeds.json."""
    values: dict[str, float | None] = {}
    for name, (run, train_spec) in runs.items():
        log.info(f"Seed {run.seed} ({len(values) + 1} of {len(runs)}):")
        estimator = Estimator(task, run)
        values[name] = None
        try:
            value = _train_seed(estimator, train_spec, eval_spec)
            if math.isfinite(value):
                values[name] = value
                log.info(f"Seed {run.seed}: {task.best_metric} {value:.4f}")
        except DivergedError as error:
            log.info(error)
    finite = {name: value for name, value in values.items() if value is not None}
    if not finite:
        raise DivergedError(f"The training of all {len(runs)} seeds has diverged, see above.")
    sign = 1 if task.best_metric_larger_is_better else -1
    best = max(finite, key=lambda name: sign * finite[name])
    summary = {"metric": task.best_metric, "values": values, "best": best}
    if estimator.chief:
        files.write_json(os.path.join(output_dir, SEEDS_FILE), summary)
    barrier(estimator.strategy)  # All processes read the file next.
    log.info(_seeds_report(task.best_metric, values, best))


def _train_seed(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> float:
    """Trains, and returns the task's `best_metric` of the best weights.

    It is read from their record, so that a finished seed is not evaluated again.
    """
    estimator.train_and_evaluate(train_spec, eval_spec)
    barrier(estimator.strategy)  # The chief writes the record.
    best = estimator.folder.best()
    if best and best.is_of(eval_spec.fingerprint):
        return best.value
    return estimator.evaluate(eval_spec)[estimator.task.best_metric]


def _train(estimator: Estimator, train_spec: TrainSpec, eval_specs: Sequence[EvalSpec]) -> None:
    """Trains with one seed; evaluates during training if that can select weights or end the run."""
    spec, config = eval_specs[0] if eval_specs else None, estimator.config
    # A single evaluation, at the end, selects nothing, and `report` makes it anyway.
    several = spec and spec.every_steps and spec.every_steps < train_spec.max_steps
    selects = several or config.early_stopping_evals or estimator.folder.has(BEST, BEST_RECORD)
    estimator.train_and_evaluate(train_spec, spec if selects else None)


def open_trained(task: FineTuningTask, run: RunConfig) -> Estimator:
    """Returns the Estimator of the model in an output directory, or of its best seed."""
    folder = RunFolder(run.output_dir).best_seed().path
    return Estimator(task, dataclasses.replace(run, output_dir=folder))


def report(
    estimator: Estimator, eval_specs: Sequence[EvalSpec], output_dir: str
) -> dict[str, float]:
    """Evaluates, prints the metrics, and writes eval_results.json and the task's own results.

    Returns:
      The metrics of the best weights of the Estimator's run. Those of the first data set have their
      own names, those of others the names <data set>_<metric>.

    Raises:
      DivergedError: a metric is not finite.
    """
    estimator.load()
    outputs = [estimator.outputs(spec) for spec in eval_specs]
    metrics = [estimator.metrics(spec, out) for spec, out in zip(eval_specs, outputs)]
    results = dict(metrics[0])
    for spec, values in zip(eval_specs[1:], metrics[1:]):
        results |= {f"{spec.name}_{name}": value for name, value in values.items()}
    print_metrics(results)
    for spec, out, values in zip(eval_specs, outputs, metrics):
        if note := constant_answer_note(values, estimator.task.constant_answers):
            log.info(f"{spec.name}: {note}")
        if estimator.chief and all(map(math.isfinite, values.values())):
            estimator.task.write_evaluation(spec.examples, out, values, output_dir)
    write_results(output_dir, results, estimator.chief)
    return results


def _seeds_report(metric: str, values: Mapping[str, float | None], best: str) -> str:
    """Returns a line for each seed, then median, best and spread."""
    shown = {name: "diverged" if x is None else f"{x:.4f}" for name, x in values.items()}
    ordered = sorted(value for value in values.values() if value is not None)
    return "\n".join(
        [
            f"{metric} of {len(values)} seeds:",
            *(f"  {name:12} {value}" for name, value in shown.items()),
            f"  median {statistics.median(ordered):.4f}, best {shown[best]} ({best}), "
            f"spread {ordered[0]:.4f} to {ordered[-1]:.4f}.",
        ]
    )
