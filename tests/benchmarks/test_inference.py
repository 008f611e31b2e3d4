# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks.inference: same texts for all, results that resume, a table of them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tooling

ROOT = pathlib.Path(__file__).parents[2]
MODEL = "albert_tiny_books"


def run(folder, *arguments):
    command = [sys.executable, "-m", "benchmarks.inference", *arguments, f"--output_dir={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def test_ways_are_measured_once_and_have_the_outputs_of_the_python_model(tmp_path):
    small = (f"--models={MODEL}", "--shapes=2x8", "--turns=1", "--seconds=0.01")
    run(tmp_path, *small, "--ways=python")
    printed = run(tmp_path, *small, "--ways=python,saved_model")
    lines = [json.loads(text) for text in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [found["way"] for found in lines] == ["python", "saved_model"]
    for found in lines:
        assert found["difference"] < 1e-5 and found["seconds"]["least"] > 0
    assert "SavedModel, ids" in printed and "Python" in printed
