# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes, evaluates and predicts; trains with several seeds and keeps the best run."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError, DivergedError
from albert_tf.io import files, removal
from albert_tf.io.log import log
from albert_tf.tasks.fine_tune_config import FineTuneConfig
from albert_tf.tasks.fine_tuning_task import ExampleSet, FineTuningTask
from albert_tf.training.cluster import barrier, output_lock
from albert_tf.training.estimator import Estimator
from albert_tf.training.monitors import print_metrics, write_results
from albert_tf.training.specs import EvalSpec, RunConfig, TrainSpec
from albert_tf.weights.run_folder import BEST, BEST_RECORD, SEEDS_FILE, RunFolder, model_folder


class Examples(NamedTuple):
    """The examples of a run, which trains, evaluates or predicts if there are examples for it.

    Attributes:
      train: training examples.
      evaluate: labelled examples by data set; the first data set selects the best weights. A data
        set without examples is left out, here and below.
      predict: examples by data set.
    """

    train: Sequence[Any] = ()
    evaluate: Mapping[str, Sequence[Any]] = {}
    predict: Mapping[str, Sequence[Any]] = {}


def _check_held_out(train: Sequence[Any], held_out: Sequence[Any]) -> None:
    """Raises AlbertError if the examples to evaluate on are the training examples, in any order."""
    if not train or len(train) != len(held_out):
        return
    first, second = (sorted(map(_content, examples)) for examples in (train, held_out))
    if first == second:
        raise AlbertError(
            f"The {len(held_out):,} examples to evaluate on are the training examples; evaluate on "
            "others. (What is known by heart can be evaluated after the training.)"
        )


def _content(example: Any) -> str:
    """Returns what an example says, without its id and its place."""
    values = getattr(example, "__dict__", {"": example})
    return repr([value for name, value in values.items() if name not in ("id", "where")])


def run(task: FineTuningTask, examples: Examples, config: FineTuneConfig) -> dict[str, float]:
    """Trains, evaluates and predicts.

    In a cluster all processes must call it; the chief writes the files. With several seeds, run i
    has the seed `config.seed + i` and the folder seed-<seed>; see `_fine_tune_seeds`.

    Args:
      task: the task.
      examples: what to train on, evaluate and predict.
      config: the settings; the output directory holds the trained model, or will hold it.

    Returns:
      The metrics of `report`; empty without evaluation.

    Raises:
      AlbertError: the examples to evaluate on are the training examples; several seeds are to be
        trained without evaluation, or in the output directory of a run with one seed, or vice
        versa; another process trains there; or see `Estimator.train_and_evaluate`.
      DivergedError: the training has diverged, with several seeds each time.
    """
    for held_out in examples.evaluate.values():
        _check_held_out(examples.train, held_out)
    folder, seeds, size = RunFolder(config.output_dir), _seeds(config), config.eval_batch_size
    folders = [config.output_dir, *(own.output_dir for own in seeds.values())]
    open_examples = functools.partial(
        task.open_examples,
        pad_to_max=config.strategy == "tpu",
        few=config.jit_compile is True,
    )
    with output_lock(config.strategy, *(folders if examples.train else ())):
        if examples.train:
            folder.check_same_seeds(seeds)
            if seeds and not any(examples.evaluate.values()):
                raise AlbertError(
                    "`num_seeds` needs `do_eval`: the best run is chosen by evaluation."
                )
            # All examples are tokenized before the training, so that errors show at once.
            data = open_examples(examples.train, "train", training=True)
            config = config.for_data(len(data.examples), data.source.num_examples)
        evaluated, predicted = (
            [open_examples(x, name, labelled=labelled) for name, x in sets.items() if x]
            for sets, labelled in ((examples.evaluate, True), (examples.predict, False))
        )
        eval_specs = [data.eval_spec(size, config.eval_every_steps) for data in evaluated]
        if examples.train:
            estimator = fine_tune(task, config, data, eval_specs)
        elif evaluated or predicted:
            estimator = _open_best_seed(task, config)
        results = report(estimator, eval_specs, folder) if eval_specs else {}
        for data in predicted:
            spec = data.eval_spec(size)
            outputs = estimator.predict(spec.input_fn, max_steps=spec.max_steps)
            if estimator.chief:
                task.write_predictions(data, outputs, folder)
        return results


def fine_tune(
    task: FineTuningTask,
    config: FineTuneConfig,
    data: ExampleSet,
    eval_specs: Sequence[EvalSpec] = (),
) -> Estimator:
    """Trains on `data` with one seed or several; returns the Estimator of the (best) run.

    The settings are those of `FineTuneConfig.for_data`. If the first of `eval_specs` has
    `every_steps`, it is evaluated during training and selects the best weights by the task's
    `best_metric`.
    """
    max_steps, passes = config.train_step, config.train_step * config.train_batch_size
    spec = eval_specs[0] if eval_specs else None
    log.info(
        f"Fine-tuning for {max_steps:,} steps of {config.train_batch_size} "
        f"({passes / data.source.num_examples:.2f} passes), "
        f"{config.num_warmup_steps:,} warm-up, learning rate {config.learning_rate:g}."
    )
    # A single evaluation, at the end, selects nothing, and `report` makes it anyway.
    several = spec and spec.every_steps and spec.every_steps < max_steps
    if several:
        log.info(f"Evaluating every {spec.every_steps:,} steps; the best weights are kept.")
    if config.num_seeds > 1:
        _fine_tune_seeds(task, config, data.source, max_steps, eval_specs[0])
        return _open_best_seed(task, config)
    estimator = Estimator(task, config)
    train_spec = TrainSpec.of(data.source.reseeded(config.seed), max_steps)
    selects = several or config.early_stopping_evals or estimator.folder.has(BEST, BEST_RECORD)
    estimator.train_and_evaluate(train_spec, spec if selects else None)
    return estimator


def _seeds(config: FineTuneConfig) -> dict[str, FineTuneConfig]:
    """Returns the settings of the runs with several seeds, by name; none for a run with one seed.

    Raises:
      AlbertError: the last seed is too large.
    """
    runs = {}
    for seed in range(config.seed, config.seed + config.num_seeds) if config.num_seeds > 1 else ():
        folder = os.path.join(config.output_dir, name := f"seed-{seed}")
        runs[name] = dataclasses.replace(config, seed=seed, num_seeds=1, output_dir=folder)
    return runs


def _fine_tune_seeds(
    task: FineTuningTask,
    config: FineTuneConfig,
    source: Sequences,
    max_steps: int,
    eval_spec: EvalSpec,
) -> None:
    """Trains and evaluates with each seed; seeds.json has the values and names the best run.

    Of equal values, that with the lower loss is better. A run that diverges has the value null, and
    the others continue. A resumed run neither trains nor evaluates the finished seeds again.
    """
    runs = _seeds(config)
    values = dict.fromkeys(runs)
    scores, sign = {}, 1 if task.best_metric_larger_is_better else -1
    for number, (name, own) in enumerate(runs.items(), start=1):
        log.info(f"Seed {own.seed} ({number} of {config.num_seeds}):")
        estimator = Estimator(task, own)
        try:
            train_spec = TrainSpec.of(source.reseeded(own.seed), max_steps)
            value, loss = _train_seed(estimator, train_spec, eval_spec)
            if math.isfinite(value):
                values[name], scores[name] = value, (sign * value, -loss)
                log.info(f"Seed {own.seed}: {task.best_metric} {value:.4f}")
        except DivergedError as error:
            log.info(error)
    if not scores:
        raise DivergedError(f"The training of all {len(values)} seeds has diverged, see above.")
    best = max(scores, key=scores.get)
    summary = {"metric": task.best_metric, "values": values, "best": best}
    if estimator.chief:
        owner = removal.owner_id("seeds", os.path.abspath(config.output_dir))
        with removal.own_temporaries(owner, config.output_dir):
            files.write_json(os.path.join(config.output_dir, SEEDS_FILE), summary)
    barrier(estimator.strategy)  # All processes read the file next.
    found = sorted(values[name] for name in scores)
    log.info(
        f"{task.best_metric} of {len(found)} seeds: median {statistics.median(found):.4f}, best "
        f"{values[best]:.4f} ({best}), spread {found[0]:.4f} to {found[-1]:.4f}."
    )


def _train_seed(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[float, float]:
    """Trains, and returns `best_metric` and loss of the best weights, recorded or evaluated."""
    estimator.train_and_evaluate(train_spec, eval_spec)
    barrier(estimator.strategy)  # The chief writes the record.
    best = estimator.folder.best()
    if best and best.is_of(eval_spec.fingerprint):
        return best.value, math.inf if best.loss is None else best.loss
    metrics = estimator.evaluate(eval_spec)
    return metrics[estimator.task.best_metric], metrics.get("loss", math.inf)


def _open_best_seed(task: FineTuningTask, run: RunConfig) -> Estimator:
    """Returns the Estimator of the model in an output directory, or of its best seed."""
    return Estimator(task, dataclasses.replace(run, output_dir=model_folder(run.output_dir)))


def report(
    estimator: Estimator,
    eval_specs: Sequence[EvalSpec],
    folder: RunFolder,
    notes: Mapping[str, float] = {},
) -> dict[str, float]:
    """Evaluates, prints the metrics, and writes eval_results.json and the task's own results.

    `eval_specs` are the data sets; tasks write results of those that have `examples`. `notes` are
    added to the metrics.

    Returns:
      The metrics. Those of the first data set have their own names, those of others the names
      <data set>_<metric>.

    Raises:
      DivergedError: a metric is not finite.
    """
    estimator.load()
    evaluated, results = [], {}
    for spec in eval_specs:
        outputs = estimator.outputs(spec)
        values = estimator.metrics(spec, outputs)
        prefix = f"{spec.name}_" if results else ""
        results |= {prefix + name: value for name, value in values.items()}
        evaluated.append((spec, outputs, values))
    results |= notes
    print_metrics(results)
    for spec, outputs, values in evaluated:
        if note := estimator.task.constant_answer_note(values):
            log.info(f"{spec.name}: {note}")
        if estimator.chief and spec.examples and all(map(math.isfinite, values.values())):
            estimator.task.write_evaluation(spec.examples, outputs, values, folder)
    write_results(folder, results, estimator.chief)
    return results
