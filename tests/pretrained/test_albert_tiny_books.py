# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The bundled model: complete files, small size, model card, and predictions."""

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
#: Always predicting the most frequent piece has an accuracy of 0.07 on held-out text.
MASKED_LM_ACCURACY = 0.3


@pytest.fixture(scope="module")
def manifest():
    return json.loads((FOLDER / pretrained.MANIFEST_FILE).read_text("utf-8"))


@pytest.fixture(scope="module")
def model():
    return albert_tf.load_pretrained(pretrained.DEFAULT)


def test_the_manifest_lists_all_files_with_size_and_checksum(manifest):
    paths = {path.name: path for path in FOLDER.iterdir()}
    del paths[pretrained.MANIFEST_FILE]
    assert {"README.md", "config.json", "model.safetensors", "spiece.model"} <= set(paths)
    assert manifest["files"] == {
        name: {"bytes": path.stat().st_size, "sha256": files.sha256(str(path))}
        for name, path in paths.items()
    }


def test_the_model_is_small_enough_to_ship():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MEGABYTES * 1e6


def test_the_weights_are_float16(model):
    stored = SafetensorsFile(str(FOLDER / "model.safetensors"))
    size = sum(int(np.prod(shape)) for shape in stored.shapes.values())
    assert (FOLDER / "model.safetensors").stat().st_size < 2.1 * size


def test_card_and_manifest_describe_how_the_model_was_trained(manifest):
    card = (FOLDER / "README.md").read_text("utf-8")
    made = manifest["made"]
    assert made["steps"] > 0 and made["tokens"] > made["steps"]
    assert any("run_pretraining.py" in command for command in made["commands"])
    assert all(command in card for command in made["commands"])
    for metrics in manifest["heldout"].values():
        assert f"{metrics['masked_lm_accuracy']:.6g}" in card
    assert "## Use" in card and "To be filled in" not in card


def test_the_model_predicts_masked_words_of_unseen_books(model):
    report = verify(model, model.tokenizer, read_lines(str(HELD_OUT)), max_sequences=300)
    assert report.verdict == TRAINED
    assert report.mlm_accuracy > MASKED_LM_ACCURACY
