# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks.tpu: steps of every task, compiled for TPUs."""

from __future__ import annotations

import itertools
import os
import pathlib

import pytest

from benchmarks import step_programs
from benchmarks.step_programs import PREDICT, STAGES, TASKS, TRAIN, Step
from benchmarks.tpu import __main__ as tpu
from tests.support.builders import tiny_config

pytestmark = pytest.mark.tooling

ROOT = pathlib.Path(__file__).parents[2]
COMPILER = os.environ.get("JAX_PYTHON", str(ROOT / ".venv-peers/tpu/bin/python"))
needs_compiler = pytest.mark.skipif(
    not os.path.exists(COMPILER),
    reason="There is no environment .venv-peers/tpu with JAX, nor one that JAX_PYTHON names.",
)
STEP = Step("masked", "albert_base_v2", 128, 8)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    tiny_config(100, max_position_embeddings=64).to_json(str(path))
    return str(path)


@pytest.mark.parametrize("limit", [7, 8, 30, 100, 1000])
def test_the_largest_batch_is_close_to_what_the_compiler_accepts(limit, tmp_path):
    asked = []

    class Stub(tpu.Results):
        def compiled(self, step, chips):
            asked.append(step.rows)
            yield {} if step.rows <= limit else {"error": "full"}

    rows = tpu.largest_batch(Stub(str(tmp_path), "python"), STEP, "v3")
    assert 0.8 * limit - 8 < rows <= limit
    assert all(rows % 8 == 0 for rows in asked) and len(set(asked)) == len(asked) < 14


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
@needs_compiler
def test_a_small_step_compiles_for_v5e(config, tmp_path):
    results = tpu.Results(str(tmp_path), COMPILER)
    (line,) = results.compiled(Step("masked", config, 32, 8), ["v5e"])
    assert tpu.fits(line), line
    assert line["device"] == "TPU v5 lite"
    assert line["entry_cycles"] > 0
    # The optimizer's state is updated in place.
    assert line["alias_bytes"] > 0.9 * line["output_bytes"]
