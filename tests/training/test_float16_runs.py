# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs in mixed_float16: the loss scale, its checkpoints, and losses near those of float32."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DivergedError
from albert_tf.optimization import loss_scale
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training import divergence
from albert_tf.training.run import TrainingRun
from tests.training.conftest import HEADS_ALONE, NO_DROPOUT
from tests.training.damage import stored
from tests.training.runs import fail, interrupted_at, logged, weights_of

FLOAT16 = {"precision": "mixed_float16", "log_every_steps": 1}
#: Far too large for these runs, whose first steps overflow.
HUGE = 2.0**22


class LoudTask(PretrainingTask):
    """Its gradient exceeds float16's range without any loss scale."""

    def means(self, sums, weights):
        means = super().means(sums, weights)
        return {**means, "loss": 1e9 * means["loss"]}


@pytest.fixture
def start_at(monkeypatch):
    """Makes runs start at a loss scale, and double it after a number of good steps."""

    def start_at(scale, growth_steps=2000):
        monkeypatch.setattr(loss_scale, "INITIAL_SCALE", scale)
        monkeypatch.setattr(loss_scale, "GROWTH_STEPS", growth_steps)

    return start_at


def column(folder, name):
    return [entry[name] for entry in logged(folder)]


def test_overflowing_steps_are_skipped_until_the_scale_fits(
    tmp_path, make, start_at, capfd, monkeypatch
):
    monkeypatch.setattr(divergence, "NONFINITE_STEPS", 1)
    start_at(HUGE)
    estimator, spec, _ = make(tmp_path, **FLOAT16, **HEADS_ALONE, steps=9)
    run = TrainingRun(estimator, spec, None)
    values = {**estimator.model.named_weights(), **run.optimizer.named_slots}
    history = [{name: value.numpy() for name, value in values.items()}]

    def check(*arguments, check=run.divergence.check):
        """Called after each step, as each is logged."""
        history.append({name: value.numpy() for name, value in values.items()})
        return check(*arguments)

    run.divergence.check = check
    run.run()
    scales = column(tmp_path, "loss_scale")
    skipped = np.diff([0, *column(tmp_path, "skipped_steps")])
    overflows = int(skipped.sum())
    assert 2 <= overflows < 9
    assert scales[: overflows + 1] == [HUGE / 2**i for i in range(overflows + 1)]
    assert set(scales[overflows:]) == {HUGE / 2**overflows}
    for skip, before, after in zip(skipped, history, history[1:]):
        assert all((after[name] == before[name]).all() for name in values) == bool(skip)
    assert int(run.optimizer.iterations) == 9
    printed = " ".join(capfd.readouterr().err.split())
    assert f"too large for float16; the loss scale is now {HUGE / 2:,.0f} (1 in all)" in printed
    assert "loss or gradient not finite" not in printed


def test_a_scale_that_cannot_recover_is_a_divergence(tmp_path, make, start_at, monkeypatch):
    monkeypatch.setattr(divergence, "NONFINITE_STEPS", 3)
    start_at(4.0)
    estimator, spec, _ = make(tmp_path, **FLOAT16, **HEADS_ALONE, task=LoudTask)
    with pytest.raises(DivergedError, match=r"3 steps in a row before step 5 .* float16 ends at"):
        estimator.train_and_evaluate(spec)
    assert column(tmp_path, "loss_scale") == [4, 2, 1, 1, 1]


def test_a_killed_run_resumes_with_its_scale_bit_for_bit(tmp_path, make, start_at):
    ends = []
    for folder in (tmp_path / "whole", tmp_path / "killed"):
        start_at(2.0**9, growth_steps=3)
        estimator, spec, _ = make(folder, **FLOAT16, **HEADS_ALONE)
        if folder.name == "killed":
            with pytest.raises(tf.errors.OpError):
                estimator.train_and_evaluate(interrupted_at(spec, 8, fail))
            # What the checkpoint of step 5 says counts.
            start_at(1.0, growth_steps=3)
            estimator, spec, _ = make(folder, **FLOAT16, **HEADS_ALONE)
        estimator.train_and_evaluate(spec)
        every_third = np.repeat(2.0 ** np.arange(9, 13), 3).tolist()
        assert column(folder, "loss_scale") == every_third
        ends.append(stored(folder / "checkpoints"))
    for name, value in (("value", np.float32(2**13)), ("good_steps", np.int64(0))):
        assert ends[0][f"loss_scale/{name}/.ATTRIBUTES/VARIABLE_VALUE"] == value.tobytes()
    assert ends[0].keys() == ends[1].keys()
    assert [key for key, value in ends[0].items() if ends[1][key] != value] == []


@pytest.mark.slow
def test_replicas_and_micro_batches_add_up_to_the_gradient_of_float32(tmp_path, make):
    two = {**FLOAT16, "strategy": "mirrored", "gradient_accumulation_steps": 2}
    for name, settings in (("float32", {"log_every_steps": 1}), ("float16", two)):
        # Dropout would differ by micro-batch.
        estimator, spec, _ = make(tmp_path / name, NO_DROPOUT, **HEADS_ALONE, steps=4, **settings)
        estimator.train_and_evaluate(spec)
    entries = logged(tmp_path / "float16")
    for entry, expected in zip(entries, logged(tmp_path / "float32")):
        assert entry["skipped_steps"] == 0 and entry["loss_scale"] == 2.0**15
        assert entry["loss"] == pytest.approx(expected["loss"], abs=0.005)
        assert entry["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=0.03)
    assert len(entries) == 4
    assert {value.dtype for value in weights_of(estimator).values()} == {np.dtype("float32")}
