# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans pretraining for a given time: batch, steps, learning rate, masks, attention and layers.

Small models learn context soon with many masks, with heads that start with the neighboring tokens,
and with fewer layers at first (docs/results/time_to_quality.md).
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Mapping

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.log import log
from albert_tf.settings import INT32_MAX
from albert_tf.tasks.pretraining.config import PretrainingConfig
from albert_tf.tasks.pretraining.data import sequence_length
from albert_tf.tasks.pretraining.task import PretrainingTask, open_inputs
from albert_tf.training.devices import mirrored_devices
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from albert_tf.training.specs import TrainSpec
from albert_tf.weights.run_folder import RUN_CONFIG, RunFolder

#: The first steps trace and compile.
_TRACING_STEPS = 2
#: Blocks of steps are timed that take at least so many seconds each, for this long in all. Pauses
#: of the machine do not count.
_BLOCK_SECONDS, _SECONDS = 0.2, 6.0
#: Positions of a training step, at least; longer runs have larger batches, up to the largest one.
_POSITIONS, _MOST_POSITIONS = 2048, 1 << 15
#: Steps of a run above which the batch doubles. In the same time, many steps with small batches
#: learn more than few with large ones (docs/results/tuning.md).
_MOST_STEPS = 50_000
#: Peak learning rate of LAMB. It does not grow with the batch: at twice this rate, a run with steps
#: of four times as many positions diverged after 1,800 steps (docs/results/tuning.md).
_RATE = 0.005
#: Share of the steps that warm up, at least so many steps, at most this share. Models that warm up
#: in a few dozen steps stay at the unigram baseline for hundreds (docs/results/tuning.md).
_WARMUP_SHARE, _WARMUP_STEPS, _MOST_WARMUP_SHARE = 0.04, 100, 0.2
#: Share of the time in which models of at least this many layers train half of them; in half of the
#: time instead, they learned less (docs/results/tuning.md).
_SHALLOW_SHARE, _FEWEST_LAYERS = 0.7, 4
#: Checkpoints of a run, at least, and about the most minutes between two of them.
_SAVES, _SAVE_MINUTES = 20, 15.0
#: Planned settings that run_config.json records.
_RECORDED = ("train_batch_size", "num_warmup_steps", "learning_rate", "shallow_layers",
             "num_shallow_steps")  # fmt: skip


def planned(config: PretrainingConfig) -> PretrainingConfig:
    """Returns the settings of a run with `time_budget`: those in its folder, or new ones.

    Raises:
      AlbertError: the time is too short, or the folder holds a run that was planned otherwise.
    """
    began = time.monotonic()
    model, source = open_inputs(config)
    if source.masking:  # Masked records have their own masks.
        config = dataclasses.replace(config, masked_lm_prob=0.4, ngram=1)
        model, source = open_inputs(config)
    if recorded := recorded_plan(config):
        return recorded
    devices = len(mirrored_devices()) if config.strategy == "mirrored" else 1
    batch = smallest_batch(sequence_length(source), devices * config.gradient_accumulation_steps)
    config = dataclasses.replace(config, train_batch_size=batch, neighbor_attention=True)
    log.info("Measuring the speed.")  # In a run that writes no file.
    alone = dataclasses.replace(config, early_stopping_evals=0)
    estimator = Estimator(PretrainingTask(model, source), alone)
    run = TrainingRun(estimator, TrainSpec.of(source, INT32_MAX), None)
    batches, measured, timing = run.batches(0), {}, 0.0
    for layers in {None, shallow_layers(model)}:
        run.loop.run(batches, _TRACING_STEPS, layers)
        since = time.monotonic()
        measured[layers] = typical_seconds(functools.partial(run.loop.run, batches, layers=layers))
        timing += time.monotonic() - since
    took = time.monotonic() - began
    # The run takes about as long to start as it took here until the steps were timed.
    return plan(config, 60 * config.time_budget - took - (took - timing), measured)


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


def smallest_batch(max_seq_length: int, parts: int = 1) -> int:
    """Returns the sequences of the smallest step, which divides into `parts` micro-batches."""
    rows = max(1, _POSITIONS // max_seq_length)
    return -(-rows // parts) * parts


def shallow_layers(config: AlbertConfig) -> int | None:
    """Returns the number of layers that the first steps of a plan train; None: all."""
    if config.num_hidden_layers < _FEWEST_LAYERS:
        return None
    layers = config.num_hidden_layers // 2
    try:
        config.with_layers(layers)
    except AlbertError:
        return None
    return layers


def plan(
    config: PretrainingConfig, seconds: float, step_seconds: Mapping[int | None, float]
) -> PretrainingConfig:
    """Returns the settings of a run that fills a time.

    Args:
      config: the settings that are not planned, with the batch of the smallest step.
      seconds: how much time is left for training.
      step_seconds: duration of the smallest step by the number of layers: for all layers (None)
        and, if the plan is to start with fewer, for `shallow_layers`.

    Raises:
      AlbertError: the time is too short for a single step.
    """
    shallow = next((layers for layers in step_seconds if layers), None)
    share = _SHALLOW_SHARE if shallow else 0.0
    shallow_steps = share * seconds / step_seconds[shallow]
    steps = shallow_steps + (1 - share) * seconds / step_seconds[None]
    factor = 1
    while steps / factor > _MOST_STEPS and factor * _POSITIONS < _MOST_POSITIONS:
        factor *= 2
    steps = int(steps / factor)
    if steps < 1:
        raise AlbertError(
            f"The time is too short: {max(0.0, seconds):.0f} seconds are left for training, and "
            f"one step takes {step_seconds[None]:.2g}. Give more time, or a smaller model."
        )
    shallow_steps = min(int(shallow_steps / factor), steps - 1)
    warmup_steps = max(int(_WARMUP_SHARE * steps), _WARMUP_STEPS)
    config = dataclasses.replace(
        config,
        train_batch_size=factor * config.train_batch_size,
        num_train_steps=steps,
        num_warmup_steps=min(warmup_steps, int(_MOST_WARMUP_SHARE * steps)),
        learning_rate=_RATE,
        shallow_layers=shallow if shallow_steps else None,
        num_shallow_steps=shallow_steps,
    )
    return _with_saves(config)


def _with_saves(config: PretrainingConfig) -> PretrainingConfig:
    """Returns the settings with the steps between checkpoints."""
    saves = max(_SAVES, config.time_budget / _SAVE_MINUTES)
    steps = max(1, int(config.num_train_steps / saves))
    return dataclasses.replace(config, save_checkpoints_steps=steps)


def recorded_plan(config: PretrainingConfig) -> PretrainingConfig | None:
    """Returns the settings of the run in the output directory; None if there is no run.

    A run with another `time_budget`, or without one, is refused when it is resumed.

    Raises:
      AlbertError: the record of the run is damaged.
    """
    folder = RunFolder(config.output_dir)
    recorded = folder.recorded()
    if recorded is None:
        folder.check_no_remains()
        return None
    values = {name: recorded["run"].get(name) for name in _RECORDED}
    values["num_train_steps"] = recorded["train"].get("max_steps")
    values["neighbor_attention"] = recorded["task"].get("neighbor_attention")
    try:
        return _with_saves(dataclasses.replace(config, **values))
    except AlbertError as error:
        raise AlbertError(f"{folder.file(RUN_CONFIG)} is damaged: {error}") from error
