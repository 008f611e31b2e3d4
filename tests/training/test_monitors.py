# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from albert_tf.training.monitors import InputWatch


def told(shares):
    watch = InputWatch()
    return [step for step, share in enumerate(shares) if watch.look(step, share)]


def test_waiting_for_input_is_warned_of_once_and_not_for_a_single_period():
    assert told([0.5, 0.01, 0.5, 0.3, 0.5, 0.0, 0.9, 0.9]) == [3]
    assert not told([0.09] * 50)
