# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Every reader against damaged files: they are read, or refused in one sentence.

No other exception, no hang, no memory blow-up. Run one kind of file with -k, for example
``pytest tests/fuzz -m "slow or not slow" -k "SQuAD and 300"``.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutations import damaged, examples, odd_json, survive
from tests.fuzz.targets import TARGETS
from tests.support.cases import slow

#: Number of variants of each file.
COUNTS = [3, *slow(300)]


def fuzz(name: str, folder, strategy, count: int) -> None:
    """Reads `count` variants of the target's file."""
    target = TARGETS[name]
    path = target.make(folder)
    good = path.read_bytes()
    target.read(path)

    @examples(count)
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        path.write_bytes(data.draw(strategy(good)))
        survive(lambda: target.read(path))

    attempt()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_bytes(name, count, tmp_path):
    fuzz(name, tmp_path, damaged, count)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.is_json])
def test_odd_values(name, count, tmp_path):
    fuzz(name, tmp_path, lambda good: odd_json(json.loads(good)), count)
