# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks.bundled_model: a model's files from its run, and its scores."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from albert_tf import pretrained
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.io import files
from albert_tf.scripts import run_pretraining
from albert_tf.weights.pretrained_model import load_pretrained
from benchmarks.bundled_model import heldout, make
from tests.support.builders import tiny_config, vocabulary, write_vocabulary
from tests.support.corpora import build

pytestmark = pytest.mark.tooling

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["sun", "rain", "river", "stone", "bread", "window", "cat", "road"]
CONFIG = tiny_config(len(vocabulary(WORDS)), num_hidden_layers=2, max_position_embeddings=128)
COMMANDS = "python run_pretraining.py --do_train --num_train_steps=4 --output_dir=runs/tiny\n"


@pytest.fixture
def run_dir(tmp_path, run_script):
    """A pretraining run of four steps on `text.txt`."""
    rng = random.Random(0)
    chapter = lambda: "\n".join(" ".join(rng.choices(WORDS, k=9)) for _ in range(12))  # noqa: E731
    (tmp_path / "text.txt").write_text("\n\n".join(chapter() for _ in range(30)) + "\n")
    options = PretrainingOptions(max_seq_length=32, record_format="compact")
    build(f"{tmp_path}/text.txt", write_vocabulary(tmp_path, WORDS), tmp_path / "records", options)
    CONFIG.to_json(str(tmp_path / "config.json"))
    run_script(
        run_pretraining, f"--input_file={tmp_path}/records", f"--output_dir={tmp_path}/run",
        f"--albert_config_file={tmp_path}/config.json", "--train_batch_size=8",
        "--num_train_steps=4", "--num_warmup_steps=1", "--log_every_steps=2",
    ).ok()  # fmt: skip
    return tmp_path / "run"


@pytest.mark.slow
def test_a_run_becomes_a_bundled_model_with_card_and_manifest(
    run_dir, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(heldout, "TEXT", str(tmp_path / "text.txt"))
    monkeypatch.setattr(pretrained, "FOLDER", str(tmp_path / "bundled"))
    work = str(tmp_path / "work")
    manifest = make.make([str(run_dir)], COMMANDS, "tiny", work, "one CPU")
    folder = tmp_path / "bundled/tiny"
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    assert manifest["made"]["steps"] == 4 and manifest["made"]["commands"] == [COMMANDS.strip()]
    assert 0 < manifest["made"]["tokens"] <= 4 * 8 * 32
    for name, file in manifest["files"].items():
        assert files.sha256(str(folder / name)) == file["sha256"]
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    # The card names the evaluation text, which is outside the repository only in this test.
    card = (folder / "README.md").read_text().replace(heldout.TEXT, "")
    assert COMMANDS.strip() in card and str(tmp_path) not in card
    assert str(tmp_path) not in (folder / "manifest.json").read_text()
    found = load_pretrained("tiny")
    assert found.config.hidden_size == 16 and found.tokenizer.vocab_size == CONFIG.vocab_size

    assert "sequences of at most 32 tokens.\nThe embeddings of later positions are copies" in card

    # A second call reuses all measurements and replaces the model.
    capfd.readouterr()
    again = make.make([str(run_dir)], COMMANDS, "tiny", work, "one GPU")
    assert "Trained on one GPU." in (folder / "README.md").read_text()
    assert capfd.readouterr().out.count("finished before, reused") == 2 * len(heldout.SEQUENCES)
    assert again["heldout"] == manifest["heldout"] and set(again["heldout"]) == set(
        heldout.SEQUENCES
    )
