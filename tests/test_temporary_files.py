# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that a process which is killed leaves nothing in the folder for temporary files."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

_SCRIPT = """
import os, signal, sys
from albert_tf import TextClassifier, export_saved_model
from tests.support.self_checks import checked_in_this_process

model, folder = "albert_tiny_books", sys.argv[1]
texts = [{"text": f"the river {i}", "label": str(i % 2)} for i in range(16)]
settings = {"train_batch_size": 8, "max_seq_length": 16, "num_train_epochs": 1}
classifier = TextClassifier.train(model, texts, texts, output_dir=f"{folder}/run", **settings)
classifier.predict(["the river"])
with checked_in_this_process():
    export_saved_model(model, f"{folder}/encoder")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_autograph_converts_nothing(tmp_path):
    """AutoGraph writes a file for each function, and removes it when the process ends."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert not list(temporary.glob("*autograph*"))
