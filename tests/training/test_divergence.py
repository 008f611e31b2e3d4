# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from albert_tf import RunConfig
from albert_tf.errors import DivergedError
from albert_tf.training import divergence
from albert_tf.training.divergence import DivergenceCheck

#: A pretraining of 3,000 steps: steps, and the losses on held-out data.
STEPS = range(0, 3001, 250)
_LATER = "6.348 6.012 5.933 5.881 5.848 5.816 5.81 5.795 5.785 5.767 5.751 5.729"
MASKED_LM = [math.log(30000), *map(float, _LATER.split())]
_LATER = ".6918 .686 .6838 .6838 .6801 .675 .6707 .6761 .6698 .6693 .6673 .666"
ORDER = [math.log(2), *map(float, _LATER.split())]
CHECKPOINTS = {step: f"ckpt-{step}" for step in range(100, 3001, 100)}
SEEDS = pytest.mark.parametrize("seed", range(20))


def warnings(loss, at_once=7, max_steps=None, columns=None, **values):
    """The warnings of a run with one loss per step, whose state is saved after every call."""
    columns = {"loss": np.asarray(loss), "finite": np.ones(len(loss)), **(columns or {})}
    check = DivergenceCheck(RunConfig("run", **values), max_steps or len(loss), lambda: CHECKPOINTS)
    found = []
    for begin in range(0, len(loss), at_once):
        end = min(begin + at_once, len(loss))
        found.append(check.check(end, {name: x[begin:end] for name, x in columns.items()}))
        check.state = json.loads(json.dumps(check.state))
    return [warning for warning in found if warning]


def books(seed=0):
    """The losses of that pretraining step by step, with a batch's noise."""
    means = (np.interp(np.arange(1, 3001), STEPS, losses) for losses in (MASKED_LM, ORDER))
    return sum(means) + np.random.default_rng(seed).normal(0, 0.08, 3000)


def learned():
    """A loss that falls from 8 to 2."""
    noise = np.random.default_rng(0).normal(0, 0.1, 3000)
    return 2 + 6 * np.exp(-np.arange(3000) / 300) + noise


@SEEDS
def test_a_pretraining_that_works_is_not_warned_of(seed):
    assert not warnings(books(seed))


@SEEDS
def test_a_task_that_is_learned_completely_is_not_warned_of(seed):
    """Its loss is mostly 0.004 in the end, and 0.5 in single batches."""
    rng = np.random.default_rng(seed)
    level = np.maximum(0.004, 0.65 * np.exp(-np.arange(4000) / 400))
    loss = level * rng.lognormal(0, 0.5, 4000)
    assert not warnings(np.where(rng.random(4000) < 0.03, np.maximum(loss, 0.5), loss))


@SEEDS
@pytest.mark.parametrize("size", [1, 32])
def test_a_task_that_is_hardly_learned_is_not_warned_of(seed, size):
    rng = np.random.default_rng(seed)
    examples = np.linspace(0.70, 0.68, 3000)[:, None] * rng.lognormal(-0.3, 0.75, (3000, size))
    assert not warnings(examples.mean(-1))


def test_a_loss_that_rises_a_little_before_it_falls_is_not_warned_of():
    """As that of a pretrained model may, when the learning rate warms up."""
    rise = np.interp(np.arange(2000), [0, 200, 400, 2000], [3.5, 3.5, 4.2, 3.4])
    assert not warnings(rise)


@pytest.mark.parametrize("back", [0.6, 1.0, 10.0])
def test_a_collapse_is_warned_of_once_within_two_windows(back):
    loss = learned()
    first, best = loss[:50].mean(), loss[1950:2000].mean()
    loss[2013:2500] += back * (first - best)
    loss[2700:] += back * (first - best)
    (warning,) = warnings(loss)
    step = int(re.search(r"50 steps up to step (\d+) is", warning)[1])
    assert 2013 < step <= 2100
    assert re.search(rf" after \d\.\d+ up to step \d+ and {first:.4g} at first\.", warning)


def test_a_slow_rise_is_warned_of():
    assert len(warnings(learned() + np.maximum(0, np.arange(3000) - 1000) / 300)) == 1


def test_to_stop_names_the_last_checkpoint_of_the_best_loss():
    loss = np.concatenate([np.linspace(8, 3, 1990), np.full(1010, 7.5)])
    with pytest.raises(DivergedError, match=r"the 50 steps up to step 2050 is 7\.5, after ") as e:
        warnings(loss, on_divergence="stop", max_steps=3000)
    assert "; the last good checkpoint is ckpt-1900. Lower" in str(e.value)
    # Also a run that was warned before.
    check = DivergenceCheck(RunConfig("run", on_divergence="stop"), 3000, dict)
    check.state |= {"first": 8.0, "best": [3.0, 0.0, 1900], "warned": True}
    with pytest.raises(DivergedError, match="there is no checkpoint from before"):
        check.check(2050, {"loss": np.full(50, 7.5), "finite": np.ones(50)})


def test_a_loss_that_is_higher_with_all_layers_is_not_warned_of_but_a_later_rise_is():
    loss = np.concatenate([np.linspace(8, 3, 1515), np.full(600, 6.0), np.full(885, 3.0)])
    values = {"shallow_layers": 1, "num_shallow_steps": 1515}
    assert len(warnings(loss)) == 1
    assert not warnings(loss, **values)
    loss[2500:] = 6.0
    (warning,) = warnings(loss, **values)
    assert "and 7.9" in warning  # Of the first steps, not of the first with all layers.


def test_what_is_noticed_does_not_depend_on_how_many_steps_are_checked_at_a_time():
    loss = learned()
    loss[2013:] += 4
    columns = {"finite": (np.arange(3000) % 17 != 4).astype(float)}
    ways = [warnings(loss, n, columns=columns) for n in (1, 3, 50, 64, 3000)]
    assert len(ways[0]) == 1
    assert all(way == ways[0] for way in ways)


def nonfinite(bad, **values):
    """The step at which a run of 100 steps, some of them not finite, ends; None: it does not."""
    finite = np.ones(100)
    finite[bad] = 0
    try:
        assert not warnings(np.where(finite, 5.0, math.nan), columns={"finite": finite}, **values)
    except DivergedError as error:
        return int(re.search(r"before step (\d+) gave a loss or gradient", str(error))[1])


@pytest.mark.parametrize("action", ["warn", "stop"])
def test_many_steps_in_a_row_that_are_not_finite_end_a_run(action):
    bad = [*range(20, 29), *range(40, 51)]
    assert nonfinite(bad, on_divergence=action) == 50


@pytest.mark.parametrize(("bad", "step"), [([95, 96], None), ([99], 100), ([97, 98, 99], 100)])
def test_a_few_steps_that_are_not_finite_end_a_run_only_at_its_end(bad, step):
    assert nonfinite(bad) == step


def test_steps_that_overflowed_do_not_count_until_the_scale_cannot_shrink(monkeypatch):
    columns = {"finite": np.ones(100), "overflowed": np.zeros(100)}
    columns["finite"][50:62] = 0
    columns["overflowed"][50:] = 1
    values = {"columns": columns, "precision": "mixed_float16"}
    monkeypatch.setattr(divergence, "NONFINITE_STEPS", 3)
    assert not warnings(np.full(100, 5.0), **values)
    columns["finite"][90:] = 0  # The run may end so.
    assert not warnings(np.full(100, 5.0), **values)
    columns["overflowed"][58:] = 0
    with pytest.raises(DivergedError, match=r"3 steps in a row before step 61 .* float16 ends at"):
        warnings(np.full(100, 5.0), **values)
