# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a training step takes on this machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.data.pipeline import RecordSource
from albert_tf.training.estimator import Estimator
from albert_tf.training.loop import TrainLoop, distribute
from albert_tf.training.run import TrainingRun
from albert_tf.training.specs import MAX_STEPS, RunConfig, TrainSpec
from albert_tf.training.task import Task

#: The first steps trace and compile; the next ones are timed, until so many seconds have passed.
_WARM_UP_STEPS = 2
_TIMED_SECONDS = 4.0


def step_seconds(
    task: Task, config: RunConfig, source: RecordSource, depths: Iterable[int | None]
) -> dict[int | None, float]:
    """Trains a model for a few seconds, and forgets it.

    Args:
      task: of the run.
      config: of the run. Nothing is written to its output directory.
      source: the training records.
      depths: numbers of layers to train, see `GraphMode.layers`.

    Returns:
      The seconds of a step with each number of layers, its input included.

    Raises:
      AlbertError: as for a real run.
    """
    config = dataclasses.replace(config, early_stopping_evals=0)  # There are no evaluations.
    run = TrainingRun(Estimator(task, config), TrainSpec.of(source, MAX_STEPS), None)
    batches = iter(distribute(run.strategy, source.train_input_fn, config.train_batch_size))
    seconds = {layers: _timed(run.loop, batches, layers) for layers in depths}
    return seconds


def _timed(loop: TrainLoop, batches: Iterator[Any], layers: int | None) -> float:
    """Returns the seconds of a step."""
    loop.run(batches, _WARM_UP_STEPS, layers)
    steps, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < _TIMED_SECONDS:
        more = max(1, steps)
        loop.run(batches, more, layers)
        steps += more
    return passed / steps
