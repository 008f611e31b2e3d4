# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_pretraining.py --time_budget, as its user runs it."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import run_pretraining
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.pretraining_build import build_pretraining_data
from data_prep.pretraining_options import PretrainingOptions
from tests.support.builders import tiny_config, vocabulary, write_vocabulary

WORDS = [f"w{i}" for i in range(95)]


@pytest.mark.slow
def test_a_run_within_a_time_follows_its_plan_and_is_resumed_by_it(run_script, tmp_path):
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 9)) if i % 20 else "" for i in range(3000)]
    vocabulary_file = write_vocabulary(tmp_path, WORDS)
    for name, part in (("train", lines[:2800]), ("heldout", lines[2800:])):
        (tmp_path / f"{name}.txt").write_text("\n".join(part))
        build_pretraining_data(
            [str(tmp_path / f"{name}.txt")],
            Tokenizer.from_file(vocabulary_file),
            str(tmp_path / name),
            PretrainingOptions(max_seq_length=64, record_format="compact"),
        )
    config = tiny_config(
        len(vocabulary(WORDS)), embedding_size=16, hidden_size=32, intermediate_size=64,
        max_position_embeddings=64, num_hidden_layers=4,
    )  # fmt: skip
    config.to_json(str(tmp_path / "config.json"))
    run = tmp_path / "run"
    command = [
        run_pretraining, f"--input_file={tmp_path / 'train'}", f"--output_dir={run}", "--do_train",
        f"--albert_config_file={tmp_path / 'config.json'}", "--log_every_steps=1",
        f"--eval_input_file={tmp_path / 'heldout'}", "--do_eval", "--eval_every_steps=100000",
        "--early_stopping_evals=3",
    ]  # fmt: skip
    began = time.monotonic()
    done = run_script(*command, "--time_budget=1")
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert 30 < took < 120
    planned = json.loads((run / "run_config.json").read_text())
    steps, shallow_steps = planned["train"]["max_steps"], planned["run"]["num_shallow_steps"]
    assert planned["run"]["time_budget"] == 1 and planned["task"]["neighbor_attention"]
    assert planned["run"]["shallow_layers"] == 2 and 0 < shallow_steps < steps
    assert f"(layers in the first {shallow_steps:,}: 2)" in done.stdout
    log = (run / "metrics.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["step"] == steps
    again = run_script(*command, "--time_budget=1")
    assert again.returncode == 0 and "is already trained to step" in again.stdout
    files = sorted(run.rglob("*"))
    other = run_script(*command, "--time_budget=2")
    assert other.returncode == 1 and "planned for 1.0 minutes, not one planned" in other.stderr
    (run / "run_config.json").rename(tmp_path / "run_config.json")
    lost = run_script(*command, "--time_budget=1")
    assert lost.returncode == 1 and "but no run_config.json" in lost.stderr
    assert "Measuring" not in other.stdout + lost.stdout
    assert sorted(run.rglob("*")) == [path for path in files if path.name != "run_config.json"]
