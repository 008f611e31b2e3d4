# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import re
import types

import numpy as np
import pytest

from albert_tf import RunConfig
from albert_tf.training.divergence import DivergenceDetector, Plateau
from albert_tf.training.task import Task
from tests.support.pages import ROOT, assert_shown, code_blocks

BOOKS = ROOT / "docs/results/books_pretraining.md"
UNIGRAM = 6.542  # The entropy of the pieces, from that page.


def plateaus(unigram=UNIGRAM):
    return (
        Plateau("mlm", lambda: unigram, "the masked LM loss", "Do.", steps=500),
        Plateau("sop", lambda: 0.5, "the accuracy", "Do.", True, steps=500, examples=40_000),
    )


def detector_of(plateaus, max_steps, **values):
    config = RunConfig("run", **{"train_batch_size": 64, **values})
    return DivergenceDetector(plateaus, config, max_steps)


def alarms(curves, at_once=7, new_only=True, plateaus=(), max_steps=3000, **values):
    """The alarms of a detector for curves with one value per step."""
    steps = len(next(iter(curves.values())))
    metrics = {
        "loss": np.full(steps, 5.0),
        "gradient_norm": np.ones(steps),
        "finite": np.ones(steps),
        **{name: np.asarray(curve) for name, curve in curves.items()},
    }
    detector = detector_of(plateaus, max_steps, **{"num_warmup_steps": 300, **values})
    raised = []
    for begin in range(0, steps, at_once):
        end = min(begin + at_once, steps)
        raised += detector.update(end, {name: curve[begin:end] for name, curve in metrics.items()})
        detector.restore(json.loads(json.dumps(detector.state())))
    return [alarm for alarm in raised if not (new_only and alarm.repeated)]


def causes(curves, **values):
    return [(alarm.cause, alarm.step) for alarm in alarms(curves, **values)]


def books(seed=0):
    """The curve of docs/results/books_pretraining.md step by step, with a batch's noise."""
    rows = re.findall(r"^\| (\d+) \| ([\d.| ]+) \|$", BOOKS.read_text("utf-8"), re.M)
    table = np.array([[float(step), *map(float, rest.split("|"))] for step, rest in rows])
    assert table.shape == (12, 5)
    table = np.vstack([[0, math.log(30000), 0, math.log(2), 0.5], table])
    steps = np.arange(1, 3001)
    mlm, sop_loss, sop = (np.interp(steps, table[:, 0], table[:, i]) for i in (1, 3, 4))
    rng = np.random.default_rng(seed)
    mlm = mlm + rng.normal(0, 2.5 / math.sqrt(64 * 18), 3000)
    return {
        "mlm": mlm,
        "sop": rng.binomial(64, sop) / 64,
        "loss": mlm + sop_loss + rng.normal(0, 0.03, 3000),
        "gradient_norm": rng.lognormal(0, 0.4, 3000) * (1 + 8 * np.exp(-steps / 50)),
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_pretraining_that_works_raises_no_alarm(seed):
    assert not alarms(books(seed), plateaus=plateaus())


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_fine_tuning_raises_no_alarm(seed):
    rng = np.random.default_rng(seed)
    level = 0.7 * np.exp(-np.arange(2000) / 400)
    curves = {
        "loss": level * rng.lognormal(0, 1.0, 2000),  # In the end mostly 0.005, now and then 0.1.
        "gradient_norm": 8 * level * rng.lognormal(0, 1.5, 2000),
    }
    chance = Plateau("loss", lambda: math.log(2), "the loss", "Do.")
    assert not alarms(curves, plateaus=[chance], num_warmup_steps=200, max_steps=2000)


def test_a_single_bad_batch_is_no_spike():
    curves = books()
    curves["loss"][[1500, 1700, 1703]] += 5
    curves["gradient_norm"][[1500, 1700, 1703]] *= 1000
    assert not alarms(curves)


@pytest.mark.parametrize("height", [0.8, 3.0])
def test_a_loss_that_jumps_and_stays_is_an_alarm_once_within_twenty_steps(height):
    curves = books()
    curves["loss"][2003:] += height
    (alarm,) = alarms(curves)
    assert alarm.cause == "loss_spike" and alarm.step in (2010, 2020)
    assert alarm.onset == alarm.step - 10 <= 2010
    assert f"between steps {alarm.onset} and {alarm.step}" in alarm.text
    assert len(alarms(curves, new_only=False)) == (3000 - alarm.step) // 10 + 1


def test_a_second_spike_after_a_recovery_is_another_alarm():
    curves = books()
    curves["loss"][1500:1600] += 2
    curves["loss"][2000:2100] += 2
    assert causes(curves) == [("loss_spike", 1510), ("loss_spike", 2010)]


def test_a_loss_that_climbs_within_sixty_steps_is_an_alarm():
    curves = books()
    curves["loss"][2000:] += np.minimum(np.arange(1000) / 60, 1) * 2.5
    ((cause, step),) = causes(curves)
    assert cause == "loss_spike" and 2000 < step <= 2060


def test_a_slow_divergence_is_one_alarm():
    # As in docs/results/time_to_quality.md: each median is less than 10 times that of 500 steps.
    curves = books()
    doublings = np.maximum(0, np.arange(3000) - 1000) / 200
    curves["gradient_norm"] *= 2**doublings
    ((cause, step),) = causes(curves)
    assert cause == "gradient_explosion" and 1600 < step < 1800
    curves = books()
    curves["loss"] += doublings / 5
    ((cause, step),) = causes(curves)
    assert cause == "loss_spike" and 1500 < step < 2500


def test_a_loss_that_is_higher_with_all_layers_is_no_alarm_but_a_later_rise_is():
    loss = np.full(3000, 4.0)
    loss[1500:1560] = 4.9
    loss[2500:] = 4.9
    values = {"shallow_layers": 1, "num_shallow_steps": 1500}
    assert [step for _, step in causes({"loss": loss})] == [1510, 2510]
    assert [step for _, step in causes({"loss": loss}, **values)] == [2510]


def test_a_gradient_norm_that_explodes_is_an_alarm_and_one_that_triples_is_not():
    curves = books()
    curves["gradient_norm"][1000:] *= 3
    assert not alarms(curves)
    curves["gradient_norm"][2000:] *= 30
    assert causes(curves) == [("gradient_explosion", 2010)]


def test_steps_that_overflowed_do_not_count_until_the_scale_cannot_shrink():
    skipped = {"finite": np.ones(100), "overflowed": np.zeros(100)}
    skipped["finite"][50:62] = 0
    skipped["overflowed"][50:] = 1
    assert not alarms(skipped, max_nonfinite_steps=3, precision="mixed_float16")
    skipped["finite"][90:] = 0  # The run may end so.
    assert not alarms(skipped, max_steps=100, max_nonfinite_steps=3)
    skipped["overflowed"][58:] = 0
    first, *_ = alarms(skipped, max_nonfinite_steps=3, precision="mixed_float16")
    assert (first.cause, first.step, first.onset) == ("not_finite", 61, 58)
    assert first.text.startswith("3 steps in a row before step 61")
    assert first.advice.startswith("float16 ends at 65504")


def test_small_gradients_that_become_normal_are_no_explosion():
    assert not alarms({"gradient_norm": np.where(np.arange(1000) < 500, 0.01, 2.0)})


def stuck(steps, level=UNIGRAM, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 2.5 / math.sqrt(64 * 18), steps)
    return {"mlm": level + noise, "sop": rng.binomial(64, 0.5, steps) / 64}


@pytest.mark.parametrize("seed", range(5))
def test_objectives_that_stay_at_chance_are_named_once_each(seed):
    raised = alarms(stuck(3000, seed=seed), plateaus=plateaus())
    assert [(alarm.cause, alarm.step, alarm.onset) for alarm in raised] == [
        ("mlm", 800, 300),
        ("sop", 925, 300),
    ]
    assert "in the 500 steps before step 800, where 6.542 needs no learning" in raised[0].text
    assert "in the 625 steps before step 925, where 50% needs no learning" in raised[1].text


def test_the_warning_of_a_task_that_is_not_learned_is_that_of_the_page():
    task = types.SimpleNamespace(chance_loss=lambda data_description: 0.6931)
    (raised,) = alarms({"loss": np.full(600, 0.695)}, plateaus=Task.plateaus(task, {}))
    blocks = code_blocks((ROOT / "docs/finetuning.md").read_text("utf-8"))
    (shown,) = [text for _, text in blocks if text.startswith("Warning: the loss is")]
    assert_shown(shown, f"Warning: {raised.text}. {raised.advice}")


def test_a_masked_lm_loss_that_is_high_but_falls_is_no_plateau():
    assert not alarms({"mlm": np.linspace(10, 6.6, 3000)}, plateaus=plateaus()[:1])


def test_sentence_order_that_is_learned_and_lost_again_is_named_each_time():
    accuracy = np.full(10_000, 0.5)
    accuracy[3000:6000] = 0.6
    raised = causes({"sop": accuracy}, plateaus=plateaus()[1:], max_steps=10_000)
    assert raised == [("sop", 1300), ("sop", 7300)]


def test_a_window_is_as_long_as_the_warm_up_and_a_tenth_of_the_run():
    def first(**values):
        return causes(stuck(30_000), plateaus=plateaus()[:1], **values)[0][1]

    assert first(num_warmup_steps=2000) == 4000
    assert first(num_warmup_steps=2000, start_warmup_step=100) == 4100
    assert first(max_steps=30_000) == 300 + 3000


def test_chance_is_not_computed_before_it_is_needed():
    def chance():
        raise RuntimeError

    plateau = Plateau("mlm", chance, "the loss", "Do.", steps=500)
    assert not alarms(stuck(799), plateaus=[plateau])
    with pytest.raises(RuntimeError):
        alarms(stuck(800), plateaus=[plateau])


def test_many_steps_in_a_row_that_are_not_finite_are_an_alarm():
    finite = np.ones(100)
    finite[20:29] = finite[40:51] = 0
    loss = np.where(finite, 5.0, math.nan)
    assert causes({"finite": finite, "loss": loss}) == [("not_finite", 50)]
    assert not alarms({"finite": np.zeros(9), "mlm": np.full(9, math.nan)}, plateaus=plateaus()[:1])


def test_the_alarms_do_not_depend_on_how_many_steps_are_checked_at_a_time():
    curves = {**books(), **stuck(3000)}
    curves["loss"][1503:1580] += 2
    curves["gradient_norm"][2000:] *= 50
    curves["finite"] = np.ones(3000)
    curves["finite"][[4, 17, 900]] = 0
    ways = [alarms(curves, n, new_only=False, plateaus=plateaus()) for n in (1, 3, 10, 64, 3000)]
    assert len(ways[0]) > 100
    assert all(way == ways[0] for way in ways)


@pytest.mark.parametrize(("bad", "steps"), [([95, 96], []), ([99], [100]), ([97, 98, 99], [100])])
def test_a_few_steps_that_are_not_finite_are_an_alarm_only_at_the_end_of_the_run(bad, steps):
    finite = np.ones(100)
    finite[bad] = 0
    raised = alarms({"finite": finite}, max_steps=100, num_warmup_steps=10)
    assert [alarm.step for alarm in raised] == steps


def detector(*plateaus):
    return detector_of(plateaus, 1000, train_batch_size=8, num_warmup_steps=0)


def state_after_25_steps(*plateaus):
    updated = detector(*plateaus)
    metrics = {"loss": 4.0, "gradient_norm": 2.0, "finite": 1.0, "mlm": 3.0, "sop": 0.5}
    updated.update(25, {name: np.full(25, value) for name, value in metrics.items()})
    return updated.state()


def test_missing_parts_of_the_state_start_afresh_and_are_named():
    state = state_after_25_steps(*plateaus())
    old = {name: part for name, part in state.items() if name != "sop"}
    old["norm"] = {"of": "another version"}
    resumed = detector(*plateaus())
    assert resumed.restore(old) == ["norm", "sop"]
    fresh = detector(*plateaus()).state()
    assert resumed.state() == {**state, "norm": fresh["norm"], "sop": fresh["sop"]}
    assert detector(*plateaus()).restore({}) == ["loss", "norm", "mlm", "sop"]


def test_plateaus_and_jumps_of_the_loss_have_separate_states():
    plateau = Plateau("loss", lambda: 0.7, "the loss", "Do.")
    state = state_after_25_steps(plateau)
    resumed = detector(plateau)
    assert resumed.restore(state) == []
    assert resumed.state() == state
    assert state["loss"]["medians"] and state["loss plateau"]["counts"] == [25, 0]
