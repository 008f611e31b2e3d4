# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans: scripts accept their commands, and stages come after their inputs."""

import importlib
import os
import sys

import pytest

from benchmarks.paper.plan import Inputs, Plan
from benchmarks.paper.recipes import SCALES, TABLES, load_recipe
from demo.stages import RECORD_FILE
from tests.support.script_flags import temporary_flags

pytestmark = pytest.mark.tooling


def plan(table, scale="tiny", **changes):
    values = {"text": "books.txt", "output_dir": "out", "data_dir": "data", "check_data": False}
    return Plan(load_recipe(table, scale), Inputs(**{**values, **changes}))


def flag_definitions(script):
    """Returns the function that defines the flags of a stage's script."""
    if script.startswith("-m "):
        module, command = script.split()[1:]
        return importlib.import_module(f"{module}.__main__").COMMANDS[command][1]
    name = script.removesuffix(".py").replace("/", ".")
    package = "albert_tf" if "." in name else "albert_tf.scripts"
    return importlib.import_module(f"{package}.{name}").define_flags


@pytest.fixture
def parse(monkeypatch):
    """Parses a stage's command as its script would; returns the given flags."""
    monkeypatch.setattr(sys, "argv", ["script"])

    def run(stage):
        with temporary_flags() as values:
            flag_definitions(stage.script)()
            rest = values([stage.script, *stage.arguments()[len(stage.script.split()) :]])
            assert rest == [stage.script]
            return {name: values[name].value for name in values if values[name].present}

    return run


@pytest.mark.parametrize("scale", SCALES)
def test_scripts_accept_the_flags_of_all_commands(scale, parse):
    commands = {}
    for table in TABLES:
        for stage in plan(table, scale).stages:
            # All tables have the same command for a folder.
            assert commands.setdefault(stage.folder, stage.arguments()) == stage.arguments()
            given = parse(stage)
            where = given.get("output_dir") or given.get("output_prefix") or given.get("output")
            assert where.startswith(stage.folder)
    assert len(commands) > 50


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("table", TABLES)
def test_stages_come_after_their_inputs(table, scale):
    done = set()
    made = plan(table, scale)
    for stage in made.stages:
        for path in stage.inputs:
            if os.path.basename(path) == RECORD_FILE:
                assert os.path.dirname(path) in done, stage.title
            else:
                assert path in made.configs
        done.add(stage.folder)
