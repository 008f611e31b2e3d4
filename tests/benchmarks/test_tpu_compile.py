# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks.tpu: steps of every task, compiled for TPUs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.modeling.flops import forward_flops, training_flops
from benchmarks import step_programs
from benchmarks.step_programs import PREDICT, STAGES, TASKS, TRAIN, Step
from benchmarks.tpu import __main__ as tpu
from tests.support.builders import tiny_config

pytestmark = pytest.mark.tooling

COMPILER = pathlib.Path(__file__).parents[2] / ".venv-peers/tpu/bin/python"
STEP = Step("masked", "albert_base_v2", 128, 8)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    tiny_config(100, max_position_embeddings=64).to_json(str(path))
    return str(path)


def held_by(rows_that_fit, path):
    """Results of a compiler that refuses programs of more rows, and the rows that it was asked."""
    asked = []

    class Stub(tpu.Results):
        def compiled(self, step, chips):
            for chip in chips:
                asked.append(step.rows)
                sizes = dict.fromkeys(("output", "alias", "generated_code"), 0)
                # Memory for twice as many rows as really fit.
                used = step.rows / (2 * rows_that_fit or 1) * tpu.CHIPS[chip].hbm_gib * 2**30
                line = {f"{x}_bytes": y for x, y in {**sizes, "argument": 0, "temp": used}.items()}
                yield line if step.rows <= rows_that_fit else {"error": "full"}

    return Stub(str(path), None), asked


@pytest.mark.parametrize("limit", [7, 8, 30, 100, 1000])
def test_the_largest_batch_is_close_to_what_the_compiler_accepts(limit, tmp_path):
    results, asked = held_by(limit, tmp_path)
    rows = tpu.largest_batch(results, dataclasses.replace(STEP, rows=16), "v3")
    assert 0.8 * limit - 8 < rows <= limit
    assert all(rows % 8 == 0 for rows in asked)
    assert len(set(asked)) < 12


def test_the_search_goes_on_upwards_from_an_estimate_that_fits(tmp_path):
    asked = []

    def accepted(rows):
        asked.append(rows)
        return rows <= 100

    assert tpu._search(accepted, 64) == 96
    assert asked == [64, 72, 80, 88, 96, 104]


def test_a_program_with_a_result_is_not_compiled_again(tmp_path, monkeypatch):
    commands = []

    def run(command):
        commands.append(command[1])
        if command[1] == "-c":
            pathlib.Path(command[-1]).write_bytes(b"program")
        return json.dumps({"flops": 1.0})

    monkeypatch.setattr(tpu, "_run", run)
    for _ in range(2):
        results = tpu.Results(str(tmp_path / "results"), "python")
        assert [x["chip"] for x in results.compiled(STEP, ["v3", "v4"])] == ["v3", "v4"]
    # The step is lowered once for both chips.
    assert commands == ["-c", tpu._COMPILER, tpu._COMPILER]


def test_the_models_own_count_includes_the_passes_of_the_stage():
    config = AlbertConfig.load("albert_base_v2")
    assert tpu.model_flops(STEP) == 8 * training_flops(config, 128, 19)
    again = dataclasses.replace(STEP, recompute=True)
    assert tpu.model_flops(again) == 8 * 4 * forward_flops(config, 128, 19)
    choice = dataclasses.replace(STEP, task="multiple_choice", stage=PREDICT)
    assert tpu.model_flops(choice) == 32 * forward_flops(config, 128)


def test_the_table_names_what_does_not_fit():
    line = {**dataclasses.asdict(STEP), "chip": "v3"}
    sizes = {f"{part}_bytes": 2**30 for part in ("argument", "output", "alias", "temp")}
    table = tpu.steps_table(
        [{**line, **sizes, "flops": tpu.model_flops(STEP)}, {**line, "error": "x"}]
    )
    assert "| v3 | masked | train | albert_base_v2 | 128 | 8 | 1.00 | 1.00 | 0.54 | 1.00 |" in table
    assert "| 8 | does not fit |" in table


MORE_STEPS = sorted({*itertools.product(TASKS, STAGES)} - {("masked", TRAIN), ("squad_2", PREDICT)})


@pytest.mark.parametrize(
    ("task", "stage"),
    [
        ("masked", TRAIN),
        ("squad_2", PREDICT),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_STEPS),
    ],
)
def test_steps_of_every_task_are_lowered_to_one_program(task, stage, config):
    program = step_programs.lower(Step(task, config, 32, 8, stage))
    assert b"ENTRY" not in program  # Serialized, not text.
    assert len(program) > 50_000


@pytest.mark.slow
def test_a_small_step_compiles_for_v5e(config, tmp_path):
    if not COMPILER.exists():
        pytest.skip("There is no environment .venv-peers/tpu; benchmarks/README.md makes it.")
    results = tpu.Results(str(tmp_path), str(COMPILER))
    (line,) = results.compiled(Step("masked", config, 32, 8), ["v5e"])
    assert tpu.fits(line), line
    assert line["device"] == "TPU v5 lite"
    # The optimizer's state is updated in place.
    assert line["alias_bytes"] > 0.9 * line["output_bytes"]
