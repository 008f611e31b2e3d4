# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks.gpu_step: the emitted step, run by JAX's client on the CPU."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from benchmarks.gpu_step import emit, pretrain, program, run
from tests.support.builders import tiny_config
from tests.support.device_side import needs_jax, run_with_jax

pytestmark = pytest.mark.tooling

CONFIG = tiny_config(100)
LENGTH, ROWS = 16, 4
SCHEDULE = {"learning_rate": 0.01, "num_train_steps": 10, "num_warmup_steps": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A program, and one with a reference of four steps, in "check"."""
    folder = tmp_path_factory.mktemp("gpu_step")
    CONFIG.to_json(str(folder / "config.json"))
    shape = emit.Shape(str(folder / "config.json"), LENGTH, ROWS)
    options = emit.Options(SCHEDULE)
    emit.emit(shape, str(folder / "programs/check"), options, reference_steps=4)
    emit.emit(shape, str(folder / "programs/00_tiny"), options)
    return folder


@pytest.mark.parametrize("part_bytes", [None, 1000])
def test_a_state_is_read_as_it_was_written(part_bytes, tmp_path):
    state = {"a/b": np.arange(1000, dtype=np.float32), "step": np.array(3)}
    path = str(tmp_path / "state-3.npz")
    program.save_state(path, state, part_bytes)
    assert len(os.listdir(tmp_path)) == (5 if part_bytes else 1)
    loaded = program.load_state(path)
    assert all(np.array_equal(loaded[name], state[name]) for name in state)
    program.save_state(str(tmp_path / "state-20.npz"), state, part_bytes)
    assert pretrain.newest_state(str(tmp_path)) == str(tmp_path / "state-20.npz")
    with pytest.raises(FileNotFoundError, match="neither"):
        program.load_state(str(tmp_path / "state-4.npz"))


@needs_jax
def test_the_step_in_jax_has_tensorflows_losses(folder, tmp_path):
    output = tmp_path / "results.json"
    options = ["--peer_python=", "--turns=2", "--turn_seconds=0.05", f"--output={output}"]
    printed = run_with_jax("run", f"--programs={folder}/programs", *options)
    assert "4 losses within" in printed
    results = json.loads(output.read_text())
    check = results["check"]
    assert check["passed"]
    assert check["loss_difference"] < run.LOSS_TOLERANCE
    assert check["norms_alike"] > run.NORMS_ALIKE
    (entry,) = results["programs"]
    assert entry["ours"]["tokens_per_second"]["median"] > 0
    # A step keeps the state where it was.
    assert entry["ours"]["alias_bytes"] > 0.9 * entry["ours"]["output_bytes"]
