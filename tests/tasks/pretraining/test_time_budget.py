# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans for pretraining within a given time."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.tasks.pretraining.time_budget import (
    make_plan,
    recorded_plan,
    shallow_layers,
    smallest_batch,
)
from albert_tf.training.run_identity import RunIdentity
from albert_tf.training.specs import RunConfig, TrainSpec
from albert_tf.weights.run_folder import RUN_CONFIG, RunFolder
from tests.support.builders import tiny_config


def plan_of(seconds, step_seconds=1.0, max_seq_length=128, is_compact=True):
    smallest = smallest_batch(max_seq_length)
    return make_plan(seconds, seconds, {None: step_seconds}, smallest, is_compact)


@pytest.mark.parametrize(("is_compact", "masks"), [(True, (0.4, 1)), (False, (None, None))])
def test_compact_records_have_many_masks_and_masked_ones_their_own(is_compact, masks):
    plan = plan_of(100, is_compact=is_compact)
    assert (plan.masked_lm_prob, plan.ngram) == masks
    assert plan.neighbor_attention


@pytest.mark.parametrize("minutes", [5, 240, 600])
@pytest.mark.parametrize("length", [32, 128, 512])
def test_a_run_fills_its_time_with_steps_of_a_fitting_size(minutes, length):
    smallest = smallest_batch(length)
    assert smallest * length == 2048
    plan = plan_of(60 * minutes, 0.3, length)
    took = plan.num_train_steps * plan.train_batch_size / smallest * 0.3
    assert took == pytest.approx(60 * minutes, rel=0.01)
    assert 0 < plan.num_warmup_steps < plan.num_train_steps <= 50_000
    assert (plan.train_batch_size > smallest) == (minutes == 600)


def test_steps_divide_among_devices_and_micro_batches():
    assert [smallest_batch(512, parts) for parts in (1, 4, 8)] == [4, 4, 8]
    plan = make_plan(1000.0, 1000.0, {None: 1.0}, smallest_batch(384, 2), is_compact=True)
    assert plan.train_batch_size == 6


def test_the_time_before_training_is_left_out():
    plan = make_plan(100.0, 80.0, {None: 1.0}, 16, is_compact=True)
    assert (plan.seconds, plan.num_train_steps) == (100.0, 80)


def test_long_runs_have_larger_batches_but_no_higher_learning_rate():
    few, many = plan_of(1000), plan_of(200_000)
    assert many.train_batch_size == 4 * few.train_batch_size
    assert many.learning_rate == few.learning_rate == 0.005


@pytest.mark.parametrize(("steps", "warmup"), [(4, 0), (400, 80), (2000, 100), (11_000, 440)])
def test_short_runs_warm_up_for_a_larger_share_of_their_steps(steps, warmup):
    plan = plan_of(steps + 0.5)
    assert (plan.num_train_steps, plan.num_warmup_steps) == (steps, warmup)


@pytest.mark.parametrize("minutes", [1, 60, 600])
def test_a_run_trains_half_of_the_layers_for_most_of_the_time(minutes):
    plan = make_plan(60.0 * minutes, 60.0 * minutes, {6: 0.1, None: 0.2}, 16, is_compact=True)
    factor = plan.train_batch_size / 16
    assert plan.shallow_layers == 6
    assert plan.num_shallow_steps * factor * 0.1 == pytest.approx(42 * minutes, rel=0.01)
    deep = plan.num_train_steps - plan.num_shallow_steps
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


def test_a_run_too_short_for_shallow_steps_has_none():
    plan = make_plan(1.5, 1.5, {2: 0.9, None: 1.0}, 16, is_compact=True)
    assert (plan.num_train_steps, plan.shallow_layers, plan.num_shallow_steps) == (1, None, 0)


def test_too_short_a_time_is_an_error():
    with pytest.raises(AlbertError, match=r"too short: 1 seconds are left .* one step takes 4"):
        plan_of(1.0, 4.0)


def record_run(folder, plan, time_budget):
    """Writes run_config.json as the training of a plan does; returns its path."""
    source = SimpleNamespace(manifest=None, masking=None)
    task = PretrainingTask(tiny_config(40), source, neighbor_attention=plan.neighbor_attention)
    spec = TrainSpec(None, plan.num_train_steps, "data", time_budget=time_budget)
    identity = RunIdentity(plan.run_config(RunConfig(str(folder))), task, spec)
    RunFolder(str(folder)).claim(identity.record, identity.data, lambda _: None)
    return folder / RUN_CONFIG


@pytest.mark.parametrize("neighbors", [True, False])
def test_a_plan_is_kept_for_the_same_time_and_for_no_other(tmp_path, neighbors):
    folder = str(tmp_path)
    assert recorded_plan(folder, 60.0, is_compact=True) is None
    plan = make_plan(60.0, 50.0, {6: 0.1, None: 0.2}, 16, True, neighbors)
    record_run(tmp_path, plan, 60.0)
    assert recorded_plan(folder, 60.0, is_compact=True) == plan
    with pytest.raises(AlbertError, match=r"planned for 60\.0 seconds, not .* 90 seconds"):
        recorded_plan(folder, 90.0, is_compact=True)


def test_the_folder_of_a_run_without_a_plan_is_refused(tmp_path):
    record_run(tmp_path, plan_of(60.0), None)
    with pytest.raises(AlbertError, match="holds a run of a given number of steps"):
        recorded_plan(str(tmp_path), 60.0, is_compact=True)


def test_checkpoints_without_the_record_of_their_run_are_refused(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in ("checkpoint", "ckpt-5.index", "ckpt-5.data-00000-of-00001"):
        (tmp_path / "checkpoints" / name).write_text("")
    with pytest.raises(AlbertError, match=r"holds checkpoints of a run, but no run_config\.json"):
        recorded_plan(str(tmp_path), 60.0, is_compact=True)


@pytest.mark.parametrize(
    ("part", "change"),
    [("run", {"train_batch_size": None}), ("train", {"max_steps": "many"}), ("task", 0)],
    ids=str,
)
def test_a_damaged_record_is_an_error_that_names_the_file(tmp_path, part, change):
    path = record_run(tmp_path, plan_of(60.0), 60.0)
    values = json.loads(path.read_text())
    values[part] = {**values[part], **change} if change else change
    path.write_text(json.dumps(values))
    with pytest.raises(AlbertError, match=RUN_CONFIG):
        recorded_plan(str(tmp_path), 60.0, is_compact=True)


def test_a_plan_sets_the_schedule_and_keeps_all_other_settings():
    common = RunConfig("run", seed=7, precision="mixed_bfloat16", train_batch_size=4096)
    config = plan_of(500.0).run_config(common)
    assert (config.output_dir, config.seed, config.precision) == ("run", 7, "mixed_bfloat16")
    assert (config.train_batch_size, config.num_warmup_steps) == (16, 100)
    assert config.save_checkpoints_steps == 25


@pytest.mark.parametrize("shallow", [{}, {6: 0.2}], ids=["all layers", "fewer at first"])
def test_long_runs_save_every_quarter_of_an_hour_even_where_steps_are_slow(shallow):
    day = 24 * 3600.0
    plan = make_plan(day, day, {**shallow, None: 0.5}, 16, is_compact=True)
    factor = plan.train_batch_size / 16
    config = plan.run_config(RunConfig("run"))
    assert 850 < config.save_checkpoints_steps * 0.5 * factor <= 900
