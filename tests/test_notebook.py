# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebooks in docs/ run, and contain their output."""

import importlib
import re
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.tooling

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs/notebooks/from_text_to_predictions.ipynb"
COLAB = ROOT / "docs/notebooks/colab.ipynb"


def printed_by(path, monkeypatch):
    """Runs a notebook; returns what its cells print."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    notebook = importlib.import_module("run_notebook").run_notebook(path)
    nbformat.validate(notebook)
    parts = [part for cell in notebook.cells for part in cell.get("outputs", ())]
    return "".join(part.text for part in parts if part.output_type == "stream")


@pytest.mark.slow
def test_the_notebook_runs_and_its_models_work(monkeypatch):
    text = printed_by(NOTEBOOK, monkeypatch)
    accuracy = float(re.search(r"^ +accuracy +(\S+)$", text, re.M)[1])
    assert accuracy > 0.5  # Of six authors; about 0.46 from random weights.
    loss = float(re.search(r"held-out masked_lm_loss +(\S+)", text)[1])
    assert 4.0 < loss < 5.2  # The frequencies of the pieces have about 6.
    assert float(re.search(r"outputs differ by at most (\S+)\.$", text, re.M)[1]) < 1e-4


@pytest.mark.slow
def test_the_notebook_for_colab_runs_and_its_classifier_is_right(monkeypatch):
    before = {*COLAB.parent.iterdir()}
    text = printed_by(COLAB, monkeypatch)
    assert re.search(r"^The sailors looked at the waves. +sea \d+%$", text, re.M)
    assert text.splitlines()[-1] == "['sea', 'home']"
    assert {*COLAB.parent.iterdir()} == before  # It writes elsewhere.
