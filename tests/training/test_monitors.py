# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import numpy as np

from albert_tf.training.monitors import ChanceWatch, InputWatch

CHANCE = math.log(3)


def warnings(losses, chance=CHANCE, warmup=50, at_once=10):
    """What a run with these losses, one a step, is told, by step."""
    watch = ChanceWatch(chance, warmup)
    found = {}
    for end in range(at_once, len(losses) + 1, at_once):
        text = watch.look(end, np.array(losses[end - at_once : end]))
        if text:
            found[end] = text
    return found


def test_a_loss_that_stays_at_chance_is_warned_of_once_after_warm_up():
    noisy = CHANCE + 0.1 * np.random.default_rng(0).standard_normal(1000)
    found = warnings(noisy)
    assert list(found) == [250]
    assert "answering by chance has 1.099" in found[250]
    assert "Try a lower --learning_rate" in found[250]


def test_steps_of_the_warm_up_do_not_count_even_within_one_look():
    assert list(warnings([CHANCE] * 400, warmup=55, at_once=20)) == [260]


def test_a_loss_that_falls_is_not_warned_of():
    assert not warnings(np.linspace(CHANCE, 0.5 * CHANCE, 250))
    assert not warnings([0.9 * CHANCE] * 1000)


def test_nothing_is_said_without_a_chance_loss_or_of_losses_that_are_not_finite():
    assert not warnings([5.0] * 1000, chance=None)
    assert not warnings([math.nan] * 1000)


def told(shares):
    watch = InputWatch()
    return [step for step, share in enumerate(shares) if watch.look(step, share)]


def test_waiting_for_input_is_warned_of_once_and_not_for_a_single_period():
    assert told([0.5, 0.01, 0.5, 0.3, 0.5, 0.0, 0.9, 0.9]) == [3]
    assert not told([0.09] * 50)
