# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The seconds of a training step."""

from __future__ import annotations

import time

import pytest

from albert_tf.training import timing


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
    monkeypatch.setattr(timing, "_SECONDS", 0.8)
    began = time.monotonic()
    assert timing.typical_seconds(steps_of(seconds, pauses)) == pytest.approx(seconds, rel=0.15)
    assert time.monotonic() - began < 5 + sum(pauses.values())
