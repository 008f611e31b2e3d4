# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The code blocks of docs/pretraining.md run, in their order, with small models."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.support.pages import ROOT, replaced, run_page

PAGE = (ROOT / "docs/pretraining.md").read_text("utf-8")
BUNDLED = ROOT / "albert_tf/pretrained/albert_tiny_books"
#: Fewer steps, of smaller models.
SMALLER = {
    "--albert_config_file=albert_base_v2": "--albert_config_file=albert_tiny",
    "--num_train_steps=125000 --num_warmup_steps=3125": "--num_train_steps=4 --num_warmup_steps=1",
    "--eval_every_steps=1000 --save_checkpoints_steps=1000": "--eval_every_steps=2 "
    "--max_eval_steps=2 --save_checkpoints_steps=2",
    "--num_train_epochs=10": "--train_step=4",
    "--time_budget=45m": "--max_eval_steps=2 --time_budget=3m",
    "--num_shallow_steps=7000": "--num_shallow_steps=2",
    "--num_train_steps=6000": "--num_train_steps=4",
    "--num_warmup_steps=240": "--num_warmup_steps=1",
    "--num_warmup_steps=360": "--num_warmup_steps=1",
    "--num_train_steps=9000": "--num_train_steps=4",
    "--num_warmup_steps=200": "--num_warmup_steps=1",
    "--max_seq_length=512": "--max_seq_length=64",
    "--num_train_steps=10000 --num_warmup_steps=1000": "--num_train_steps=4 --num_warmup_steps=1",
}


@pytest.mark.slow
def test_the_page_about_pretraining_runs(tmp_path):
    release = tmp_path / "albert_base"
    convert = [sys.executable, str(ROOT / "convert_checkpoint.py"), f"--from_path={BUNDLED}"]
    subprocess.run([*convert, "--to=tf1", f"--output_dir={release}"], check=True, timeout=300)
    (vocabulary,) = release.glob("*.model")
    shutil.move(vocabulary, release / "30k-clean.model")
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    printed = run_page(replaced(PAGE, SMALLER), tmp_path)
    assert "8000 pieces" in printed and "albert_base/model.ckpt-best: " in printed
    planned = json.loads((tmp_path / "runs/small/run_config.json").read_text())
    assert planned["task"]["neighbor_attention"] and planned["run"]["shallow_layers"] == 2
    for run in ("base", "small", "long", "growing", "short", "continued", "adapted"):
        assert (tmp_path / "runs" / run / "checkpoints/checkpoint").exists(), run
    # The exported classifier names an author.
    assert any(
        f"[b'{name}']" in printed
        for name in ("darwin", "doyle", "spinoza", "smith", "dickens", "washington")
    )
