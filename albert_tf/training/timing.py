# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a training step takes on this machine."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Iterable

from albert_tf.data.pipeline import RecordSource
from albert_tf.settings import INT32_MAX
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from albert_tf.training.specs import RunConfig, TrainSpec
from albert_tf.training.task import Task

#: The first steps trace and compile.
_WARM_UP_STEPS = 2
#: Blocks of steps are timed that take at least so many seconds each, for this long in all. Pauses
#: of the machine do not count.
_BLOCK_SECONDS, _SECONDS = 0.2, 6.0


def step_seconds(
    task: Task, config: RunConfig, source: RecordSource, depths: Iterable[int | None]
) -> tuple[dict[int | None, float], float]:
    """Trains a model for a few seconds, and forgets it; writes no file, but raises as a run does.

    Returns the seconds of a step with each of `depths`, the number of layers to train (see
    TrainingStep), its input included; and the seconds spent on timing steps, without those before
    the first one.
    """
    config = dataclasses.replace(config, early_stopping_evals=0)  # There are no evaluations.
    run = TrainingRun(Estimator(task, config), TrainSpec.of(source, INT32_MAX), None)
    batches, seconds, spent = run.batches(0), {}, 0.0
    for layers in depths:
        run.loop.run(batches, _WARM_UP_STEPS, layers)
        began = time.monotonic()
        seconds[layers] = typical_seconds(functools.partial(run.loop.run, batches, layers=layers))
        spent += time.monotonic() - began
    return seconds, spent


def typical_seconds(run: Callable[[int], object]) -> float:
    """Returns the seconds of a step, whatever else the machine does for a moment.

    It is the median of several blocks of steps, so that a pause of any length does not matter.
    `run` runs a number of steps.
    """
    steps, seconds = 1, []
    while True:
        began = time.monotonic()
        run(steps)
        took = time.monotonic() - began
        if took < _BLOCK_SECONDS:
            steps *= 2
            continue
        seconds.append(took / steps)
        median = statistics.median(seconds)
        if len(seconds) >= 3 and len(seconds) * steps * median >= _SECONDS:
            return median
