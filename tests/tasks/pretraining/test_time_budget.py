# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans for pretraining within a given time."""

from __future__ import annotations

import dataclasses
import json
import time
from types import SimpleNamespace

import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining import time_budget
from albert_tf.tasks.pretraining.config import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.tasks.pretraining.time_budget import (
    plan,
    recorded_plan,
    shallow_layers,
    smallest_batch,
)
from albert_tf.training.run_identity import run_record
from albert_tf.training.specs import TrainSpec
from albert_tf.weights.run_folder import RUN_CONFIG, RunFolder
from tests.support.builders import tiny_config


def plan_of(minutes, step_seconds=1.0, max_seq_length=128, folder="run", **settings):
    """A plan whose whole time is left for training."""
    batch = smallest_batch(max_seq_length)
    config = PretrainingConfig(str(folder), train_batch_size=batch, time_budget=minutes, **settings)
    times = step_seconds if isinstance(step_seconds, dict) else {None: step_seconds}
    return plan(config, 60.0 * minutes, times)


@pytest.mark.parametrize("minutes", [5, 240, 600])
@pytest.mark.parametrize("length", [32, 128, 512])
def test_a_run_fills_its_time_with_steps_of_a_fitting_size(minutes, length):
    smallest = smallest_batch(length)
    assert smallest * length == 2048
    planned = plan_of(minutes, 0.3, length)
    took = planned.num_train_steps * planned.train_batch_size / smallest * 0.3
    assert took == pytest.approx(60 * minutes, rel=0.01)
    assert 0 < planned.num_warmup_steps < planned.num_train_steps <= 50_000
    assert (planned.train_batch_size > smallest) == (minutes == 600)


def test_steps_divide_among_devices_and_micro_batches():
    assert [smallest_batch(512, parts) for parts in (1, 4, 8)] == [4, 4, 8]
    assert smallest_batch(384, 2) == 6


def test_long_runs_have_larger_batches_but_no_higher_learning_rate():
    few, many = plan_of(17), plan_of(3333)
    assert many.train_batch_size == 4 * few.train_batch_size
    assert many.learning_rate == few.learning_rate == 0.005


@pytest.mark.parametrize(("steps", "warmup"), [(4, 0), (400, 80), (2000, 100), (11_000, 440)])
def test_short_runs_warm_up_for_a_larger_share_of_their_steps(steps, warmup):
    planned = plan_of((steps + 0.5) / 60)
    assert (planned.num_train_steps, planned.num_warmup_steps) == (steps, warmup)


@pytest.mark.parametrize("minutes", [1, 60, 600])
def test_a_run_trains_half_of_the_layers_for_most_of_the_time(minutes):
    planned = plan_of(minutes, {6: 0.1, None: 0.2})
    factor = planned.train_batch_size / 16
    assert planned.shallow_layers == 6
    assert planned.num_shallow_steps * factor * 0.1 == pytest.approx(42 * minutes, rel=0.01)
    deep = planned.num_train_steps - planned.num_shallow_steps
    assert deep * factor * 0.2 == pytest.approx(18 * minutes, rel=0.01)


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"num_hidden_layers": 12}, 6),
        ({"num_hidden_layers": 5, "num_hidden_groups": 2}, 2),
        ({"num_hidden_layers": 4, "num_hidden_groups": 3}, None),
        ({"num_hidden_layers": 3}, None),
        ({"num_hidden_layers": 12, "parameter_sharing": "attention"}, None),
    ],
    ids=str,
)
def test_models_train_half_of_their_layers_at_first_if_that_is_possible(change, layers):
    assert shallow_layers(tiny_config(40, **change)) == layers


def test_too_short_a_time_is_an_error():
    with pytest.raises(AlbertError, match=r"too short: 1 seconds are left .* one step takes 4"):
        plan_of(1 / 60, 4.0)


def record_run(config, time_budget):
    """Writes run_config.json as the training of a plan does; returns its path."""
    source = SimpleNamespace(manifest=SimpleNamespace(options={}), masking=None)
    task = PretrainingTask(tiny_config(40), source, neighbor_attention=config.neighbor_attention)
    config = dataclasses.replace(config, time_budget=time_budget)
    spec, folder = TrainSpec(None, config.num_train_steps, "data"), RunFolder(config.output_dir)
    folder.claim(run_record(config, task, spec), lambda _: None)
    return folder.file(RUN_CONFIG)


@pytest.mark.parametrize("neighbors", [True, False])
def test_a_plan_is_kept(tmp_path, neighbors):
    given = PretrainingConfig(str(tmp_path), time_budget=60.0)
    assert recorded_plan(given) is None
    times = {6: 0.1, None: 0.2}
    planned = plan_of(60.0, times, folder=tmp_path, neighbor_attention=neighbors)
    record_run(planned, 60.0)
    assert recorded_plan(given) == planned


@pytest.mark.parametrize(
    ("part", "change"),
    [("run", {"train_batch_size": None}), ("train", {"max_steps": "many"}), ("task", 0)],
    ids=str,
)
def test_a_damaged_record_is_an_error_that_names_the_file(tmp_path, part, change):
    path = record_run(plan_of(60.0, folder=tmp_path), 60.0)
    with open(path) as f:
        values = json.load(f)
    values[part] = {**values[part], **change} if change else change
    with open(path, "w") as f:
        json.dump(values, f)
    with pytest.raises(AlbertError, match=RUN_CONFIG):
        recorded_plan(PretrainingConfig(str(tmp_path), time_budget=60.0))


def test_long_runs_save_every_quarter_of_an_hour():
    planned = plan_of(24 * 60, {None: 0.5})
    factor = planned.train_batch_size / 16
    assert 850 < planned.save_checkpoints_steps * 0.5 * factor <= 900


@pytest.mark.parametrize(
    ("given", "precision"),
    [
        ({"time_budget": 60}, "auto"),
        ({"time_budget": 60, "precision": "float32"}, "float32"),
        ({}, "float32"),
    ],
)
def test_a_run_within_a_time_has_the_fastest_precision_unless_one_is_given(given, precision):
    assert PretrainingConfig("run", **given).precision == precision


def steps_of(seconds, pauses):
    """Returns a function that runs steps, and pauses before some of the calls."""
    calls = iter(range(10_000))

    def run(steps):
        time.sleep(steps * seconds + pauses.get(next(calls), 0.0))

    return run


@pytest.mark.parametrize(
    ("seconds", "pauses"),
    [
        (0.01, {}),
        (0.01, {0: 0.5}),  # While the number of steps is sought.
        (0.01, {6: 1.0, 8: 0.5}),
        (0.25, {1: 1.0}),  # Each step is a block.
    ],
    ids=str,
)
def test_pauses_of_the_machine_change_neither_the_result_nor_the_time_it_takes(
    monkeypatch, seconds, pauses
):
    monkeypatch.setattr(time_budget, "_SECONDS", 0.8)
    began = time.monotonic()
    assert time_budget.typical_seconds(steps_of(seconds, pauses)) == pytest.approx(
        seconds, rel=0.15
    )
    assert time.monotonic() - began < 5 + sum(pauses.values())
