# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans: scripts accept their commands, and tables share models."""

import importlib
import os
import sys

import pytest

from albert_tf.weights.pretrained_model import load_pretrained
from benchmarks.paper.plan import Inputs, Plan, Source
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
    return importlib.import_module(script.removesuffix(".py").replace("/", ".")).define_flags


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


def test_tables_share_models():
    models = {table: plan(table).models for table in ("table2", "table3", "table4", "table5")}
    assert (
        models["table2"]["BERT base"]
        == models["table3"]["not-shared E=768"]
        == models["table4"]["not-shared E=768"]
    )
    assert models["table2"]["ALBERT base"] == models["table5"]["SOP"]
    assert plan("table8").models["Without dropout"] == models["table2"]["ALBERT xxlarge"]
    wanted = ("table2", "table3", "table4", "table5", "table8")
    assert len({model for table in wanted for model in plan(table).models.values()}) == 21


def test_small_models_continue_the_bundled_one_and_sop_reads_whole_sentences():
    made = plan("table5", "small")
    stages = {stage.folder: stage for stage in made.stages}
    assert not any("train_sentencepiece" in stage.script for stage in made.stages)
    for row in ("None", "NSP", "SOP"):
        given = stages[made.models[row]].flags
        assert given["init_checkpoint"] == "albert_tiny_books"
        model = load_pretrained(given["init_checkpoint"])
        assert made.rows[row].config == model.config
    train, whole, cut = (
        f"out/records/all-{kind}"
        for kind in ("train-sop-whole", "heldout-sop-whole", "heldout-sop")
    )
    assert stages[train].flags["whole_sentences"] and stages[whole].flags["whole_sentences"]
    assert "whole_sentences" not in stages[cut].flags
    assert stages[made.models["SOP"]].flags["input_file"] == train
    assert stages[made.models["SOP"]].flags["eval_input_file"] == whole
    assert made.cells["SOP"]["sop-whole"].folder == made.models["SOP"]
    assert stages[made.cells["SOP"]["sop"].folder].flags["eval_input_file"] == cut
    assert stages[made.models["NSP"]].flags["eval_input_file"] == cut
    assert stages[made.cells["NSP"]["sop-whole"].folder].flags["eval_input_file"] == whole


def test_the_paper_scale_fine_tunes_from_the_checkpoint_and_from_mnli():
    made = plan("table9", "paper")
    stages = {stage.folder.removeprefix("out/fine_tuned/"): stage for stage in made.stages}
    name = made.models["ALBERT (1M)"].removeprefix("out/models/")
    mnli = stages[f"{name}-at1000000/mnli"].flags
    assert mnli["init_checkpoint"] == f"out/models/{name}/checkpoints/ckpt-1000000"
    assert mnli["albert_config_file"] in made.configs
    rte = stages[f"{name}-at1000000/rte"].flags
    assert rte["init_checkpoint"] == f"out/fine_tuned/{name}-at1000000/mnli/seed-12345"
    assert stages[f"{name}/mnli"].flags["init_checkpoint"] == f"out/models/{name}"
    assert made.models["ALBERT (1M)"] == made.models["ALBERT (1.5M)"]


def test_tasks_without_data_are_left_out_and_listed(tmp_path):
    (tmp_path / "glue/SST-2").mkdir(parents=True)
    made = plan("table5", data_dir=str(tmp_path), check_data=True)
    assert isinstance(made.cells["SOP"]["sst-2"], Source)
    assert "mnli" not in made.cells["SOP"]
    assert made.missing["MNLI"] == "not run at this scale"
    paper = plan("table5", "paper", data_dir=str(tmp_path), check_data=True)
    assert paper.missing["MNLI"] == "no glue/MNLI"
    assert plan("table5", data_dir=None).missing["SST-2"] == "no --data_dir was given"


def test_each_seed_has_a_row_and_a_model_of_its_own():
    recipe = load_recipe("table2", "small").with_seeds([1, 2])
    made = Plan(recipe, Inputs("t", "out", "data", check_data=False))
    assert list(made.rows)[:2] == ["BERT base, seed 1", "BERT base, seed 2"]
    one, two = (made.rows[f"ALBERT base, seed {seed}"] for seed in (1, 2))
    assert one.published and not two.published
    assert recipe.speed_of == "BERT large, seed 1"
    flags = {stage.folder: stage.flags for stage in made.stages}
    models = [flags[made.models[row.name]] for row in (one, two)]
    assert [model["random_seed"] for model in models] == [1, 2]
    # Both read the same records.
    assert models[0]["input_file"] == models[1]["input_file"]
    assert made.cells[one.name]["sst-2"].folder != made.cells[two.name]["sst-2"].folder
