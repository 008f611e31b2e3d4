# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed with SIGKILL and resumed end as if they had not been, bit for bit."""

from __future__ import annotations

import json

import pytest

from tests.faults.configurations import CONFIGURATIONS, write_data
from tests.faults.kills import Series

FEW, MANY = 1, 20
SHORT = ("offline masks", "classifier, windows", "builder")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture
def survive(script_server, data, tmp_path):
    def survive(name, kills):
        series = Series(CONFIGURATIONS[name], script_server, data, tmp_path)
        figures = series.run(kills)
        print(figures.line(name))
        assert not figures.differences
        assert figures.kills == kills
        return series.reference

    return survive


@pytest.mark.parametrize("name", SHORT)
def test_a_killed_run_ends_like_the_uninterrupted_one(survive, name):
    survive(name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_repeatedly_killed_run_ends_like_the_uninterrupted_one(survive, name):
    folder = survive(name, MANY)
    # What the configuration is for did happen.
    if name == "classifier":
        steps = [json.loads(x)["step"] for x in (folder / "metrics.jsonl").read_text().splitlines()]
        best = json.loads((folder / "best/best.json").read_text())["step"]
        assert best > 2 and steps[-1] == best + 8 < 40
