# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import pytest

from albert_tf import AlbertError, RunConfig, TrainSpec
from albert_tf.training.specs import MAX_SEED, MAX_STEPS


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("learning_rate", 0.0, r"learning_rate=0.0 must be a number above 0\."),
        ("learning_rate", -0.1, r"learning_rate=-0.1 must be a number above 0\."),
        ("learning_rate", math.nan, r"learning_rate=nan must be a number above 0\."),
        ("learning_rate", math.inf, r"learning_rate=inf must be a number above 0\."),
        ("clip_norm", 0.0, r"clip_norm=0.0 must be a number above 0\."),
        ("weight_decay_rate", math.nan, r"weight_decay_rate=nan must be a number of at least 0\."),
        ("poly_power", -1.0, r"poly_power=-1.0 must be a number of at least 0\."),
        ("num_warmup_steps", -1, r"num_warmup_steps=-1 must be a number of at least 0\."),
        ("seed", -1, r"The random seed is -1; seeds are integers from 0 to 2147483647\."),
        ("seed", 2**31, r"The random seed is 2147483648; seeds are integers from 0 to 2147483647"),
        ("output_dir", None, "--output_dir is needed"),
        ("output_dir", 3, "The path of the output directory must be a string, not 3"),
        ("train_batch_size", "8", "train_batch_size='8' must be an integer of at least 1"),
        ("eval_batch_size", 8.5, r"eval_batch_size=8\.5 must be an integer of at least 1"),
        ("steps_per_loop", 0, "steps_per_loop=0 must be an integer of at least 1"),
    ],
)
def test_values_that_no_run_can_have_are_refused(name, value, sentence):
    with pytest.raises(AlbertError, match=f"^{sentence}"):
        RunConfig(**{"output_dir": "runs/mine", name: value})


def test_the_output_directory_may_be_a_path_object(tmp_path):
    assert RunConfig(tmp_path).output_dir == str(tmp_path)


def test_the_least_and_largest_values_are_taken():
    least = {"weight_decay_rate": 0.0, "poly_power": 0.0, "num_warmup_steps": 0, "seed": 0}
    RunConfig("runs/mine", learning_rate=1e-30, clip_norm=1e-30, **least)
    RunConfig("runs/mine", seed=MAX_SEED)
    TrainSpec(input, MAX_STEPS)


def test_more_steps_than_a_step_counter_holds_are_refused():
    with pytest.raises(AlbertError, match=r"^100,000,000,000,000,000,000 steps are too many"):
        TrainSpec(input, 10**20)


@pytest.mark.parametrize(
    ("warmup", "start", "steps", "reached"),
    [(10, 0, 11, None), (10, 0, 10, 0.9), (10, 0, 4, 0.3), (10, 5, 12, 0.6), (10, 20, 12, 0.0)],
)
def test_a_warmup_that_outlasts_training_is_said(warmup, start, steps, reached):
    config = RunConfig("x", learning_rate=1.0, num_warmup_steps=warmup, start_warmup_step=start)
    note = config.warmup_note(steps)
    if reached is None:
        assert note is None
    else:
        assert f"ends at step {start + warmup}, but training ends at step {steps}:" in note
        assert f"the learning rate reaches {reached:.0%} of its peak 1." in note
