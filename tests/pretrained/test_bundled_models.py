# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The bundled models: complete files, small size, model cards, and predictions."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf import pretrained
from albert_tf.huggingface.weights import read_safetensors
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.tokenization.sequences import join_segments, pad_sequences

ROOT = Path(__file__).resolve().parents[2]
HELD_OUT = str(ROOT / "benchmarks/data/books_heldout.txt.gz")
MEGABYTES = 12
#: At least; always predicting the most frequent piece has 0.07 on held-out text.
MASKED_LM_ACCURACY = {"albert_tiny_books": 0.33, "albert_small_books": 0.47}


@pytest.fixture(scope="module", params=pretrained.bundled_names())
def name(request):
    return request.param


@pytest.fixture(scope="module")
def folder(name):
    return Path(pretrained.FOLDER) / name


@pytest.fixture(scope="module")
def manifest(folder):
    return json.loads((folder / pretrained.MANIFEST_FILE).read_text("utf-8"))


@pytest.fixture(scope="module")
def model(name):
    return albert_tf.load_pretrained(name)


def test_all_models_are_tested():
    assert set(pretrained.bundled_names()) == set(MASKED_LM_ACCURACY)


def test_the_manifest_lists_all_files_with_size_and_checksum(folder, manifest):
    paths = {path.name: path for path in folder.iterdir()}
    del paths[pretrained.MANIFEST_FILE]
    assert {"README.md", "config.json", "model.safetensors", "spiece.model"} <= set(paths)
    assert manifest["files"] == {
        name: {"bytes": path.stat().st_size, "sha256": files.sha256(str(path))}
        for name, path in paths.items()
    }


def test_the_model_is_small_enough_to_ship(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MEGABYTES * 1e6


def test_the_weights_are_float16(folder):
    stored = read_safetensors(str(folder / "model.safetensors"))
    assert {value.dtype for value in stored.values()} == {np.dtype(np.float16)}


def test_card_and_manifest_describe_how_the_model_was_trained(folder, manifest):
    card = (folder / "README.md").read_text("utf-8")
    made = manifest["made"]
    assert made["steps"] > 0 and made["tokens"] > made["steps"]
    assert any("run_pretraining.py" in command for command in made["commands"])
    assert all(command in card for command in made["commands"])
    for metrics in manifest["heldout"].values():
        assert f"{metrics['masked_lm_accuracy']:.6g}" in card
    assert "## Use" in card and "To be filled in" not in card


def test_the_model_predicts_masked_words_of_unseen_books(name, model):
    tokenizer = model.tokenizer
    sentences = [tokenizer.encode(line) for line in itertools.islice(read_lines(HELD_OUT), 2000)]
    sequences = [join_segments(tokenizer, ids) for ids in sentences if 20 <= len(ids) < 60][:400]
    inputs = pad_sequences(tokenizer, sequences)
    right = inputs["input_word_ids"].copy()
    positions = np.tile(np.arange(3, 20, 6, dtype=np.int32), [len(sequences), 1])
    np.put_along_axis(inputs["input_word_ids"], positions, tokenizer.mask_id, axis=1)
    logits = model({**inputs, "masked_lm_positions": positions})["mlm_logits"]
    is_right = np.argmax(logits, axis=-1) == np.take_along_axis(right, positions, axis=1)
    assert is_right.mean() > MASKED_LM_ACCURACY[name]
