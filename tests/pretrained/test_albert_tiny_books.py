# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of the bundled model: whole, small, described, and of a model that has learned."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf import pretrained
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.weights.safetensors import SafetensorsFile
from albert_tf.weights.verify import TRAINED, verify

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(pretrained.FOLDER) / pretrained.DEFAULT
HELD_OUT = ROOT / "benchmarks/data/books_heldout.txt.gz"
MEGABYTES = 12
#: 0.07 is what the commonest piece alone reaches on held-out text.
MASKED_LM_ACCURACY = 0.3


@pytest.fixture(scope="module")
def manifest():
    return json.loads((FOLDER / pretrained.MANIFEST_FILE).read_text("utf-8"))


@pytest.fixture(scope="module")
def model():
    return albert_tf.load_pretrained(pretrained.DEFAULT)


def test_the_manifest_has_all_files_as_they_are(manifest):
    there = {path.name: path for path in FOLDER.iterdir()}
    del there[pretrained.MANIFEST_FILE]
    assert {"README.md", "config.json", "model.safetensors", "spiece.model"} <= set(there)
    assert manifest["files"] == {
        name: {"bytes": path.stat().st_size, "sha256": files.sha256(str(path))}
        for name, path in there.items()
    }


def test_it_is_small_enough_to_be_shipped():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MEGABYTES * 1e6


def test_its_weights_are_float16(model):
    stored = SafetensorsFile(str(FOLDER / "model.safetensors"))
    size = sum(int(np.prod(shape)) for shape in stored.shapes.values())
    assert (FOLDER / "model.safetensors").stat().st_size < 2.1 * size


def test_card_and_manifest_tell_how_it_was_made(manifest):
    card = (FOLDER / "README.md").read_text("utf-8")
    made = manifest["made"]
    assert made["steps"] > 0 and made["tokens"] > made["steps"]
    assert any("run_pretraining.py" in command for command in made["commands"])
    assert all(command in card for command in made["commands"])
    for metrics in manifest["heldout"].values():
        assert f"{metrics['masked_lm_accuracy']:.6g}" in card
    assert "## Use" in card and "To be filled in" not in card


def test_it_predicts_words_of_books_it_has_not_read(model):
    found = verify(model, model.tokenizer, read_lines(str(HELD_OUT)), max_sequences=300)
    assert found.verdict == TRAINED
    assert found.mlm_accuracy > MASKED_LM_ACCURACY
