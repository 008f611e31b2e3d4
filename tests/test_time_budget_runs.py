# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_pretraining.py --time_budget, as its user runs it."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import run_pretraining
from albert_tf.weights.load import load_pretrained
from data_prep.pretraining_build import Output, TokenizerSource, build_pretraining_data
from data_prep.pretraining_options import PretrainingOptions
from tests.support.builders import tiny_config, vocabulary, write_vocabulary

WORDS = [f"w{i}" for i in range(95)]


@pytest.mark.slow
def test_a_run_within_a_time_begins_short_and_is_resumed_by_its_plan(run_script, tmp_path):
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 9)) if i % 20 else "" for i in range(3000)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    records = str(tmp_path / "records")
    build_pretraining_data(
        [str(tmp_path / "text.txt")],
        TokenizerSource(write_vocabulary(tmp_path, WORDS)),
        Output(records),
        PretrainingOptions(max_seq_length=64, record_format="compact"),
    )
    config = tiny_config(
        len(vocabulary(WORDS)), embedding_size=16, hidden_size=32, intermediate_size=64,
        max_position_embeddings=64,
    )  # fmt: skip
    config.to_json(str(tmp_path / "config.json"))
    run = tmp_path / "run"
    command = [
        run_pretraining, f"--input_file={records}", f"--output_dir={run}", "--do_train",
        f"--albert_config_file={tmp_path / 'config.json'}", "--log_every_steps=1",
    ]  # fmt: skip
    began = time.monotonic()
    done = run_script(*command, "--time_budget=2m")
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert 60 < took < 240
    plan = json.loads((run / "plan.json").read_text())
    assert [stage["max_seq_length"] for stage in plan["stages"]] == [32, 64]
    for stage in plan["stages"]:
        log = (run / stage["folder"] / "metrics.jsonl").read_text().splitlines()
        assert json.loads(log[-1])["step"] == stage["num_train_steps"]
    assert load_pretrained(str(run)).config.max_position_embeddings == 64
    # The last stage starts from the first one's weights.
    assert "positions from 32 on repeat" in done.stdout
    again = run_script(*command, "--time_budget=2m")
    assert again.returncode == 0 and again.stdout.count("is already trained to step") == 2
    other = run_script(*command, "--time_budget=3m")
    assert other.returncode == 1 and "planned for 120.0 seconds, not 180" in other.stderr
