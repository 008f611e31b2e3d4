# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Bundled models can be given by name in place of any path to weights."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from albert_tf import pretrained
from albert_tf.errors import AlbertError
from albert_tf.scripts import run_classifier, run_pretraining
from albert_tf.tasks import flags as shared
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.weights.pretrained_model import load_pretrained
from tests.pretrained.conftest import CONFIG, PIECES, WORDS
from tests.support.script_flags import parsed_flags

ROOT = Path(__file__).resolve().parents[2]
NAME = pretrained.DEFAULT
DEFAULT_LINE = f"Without --init_checkpoint, the bundled {NAME} is trained"


def test_a_name_loads_the_bundled_model(bundled):
    assert pretrained.bundled_names() == [NAME]
    by_name, by_path = load_pretrained(NAME), load_pretrained(str(bundled))
    assert by_name.config == by_path.config == CONFIG
    assert by_name.tokenizer.encode("fine rain") == [PIECES.index("fine"), PIECES.index("rain")]
    for name, weight in by_path.named_weights().items():
        np.testing.assert_array_equal(by_name.named_weights()[name], weight)


def test_a_path_of_the_same_name_takes_precedence(bundled, tmp_path, monkeypatch):
    local = tmp_path / "here"
    shutil.copytree(tmp_path / "run", local / NAME)
    monkeypatch.chdir(local)
    assert load_pretrained(NAME).load_report.checkpoint.startswith(f"{NAME}/")


def test_the_error_for_an_unknown_name_lists_the_bundled_models(bundled):
    with pytest.raises(AlbertError, match=rf"no checkpoint at albert_tiny_boks, .*\({NAME}\)\.$"):
        load_pretrained("albert_tiny_boks")


@pytest.fixture
def texts(tmp_path):
    """A table of labelled sentences of the vocabulary's words."""
    rng = random.Random(0)
    rows = [(" ".join(rng.choices(WORDS, k=4)), str(i % 2)) for i in range(16)]
    path = tmp_path / "texts.tsv"
    path.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.fixture
def classify(run_script, texts, tmp_path):
    """Trains a classifier for two steps; returns its output and its folder."""

    def run(*arguments):
        done = run_script(
            run_classifier, "--do_train", f"--train_file={texts}", "--train_step=2",
            "--train_batch_size=8", "--max_seq_length=8", "--precision=float32",
            f"--output_dir={tmp_path}/out", *arguments,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout, tmp_path / "out"

    return run


def initial(folder):
    """Returns the recorded initial weights of a run."""
    return json.loads((folder / "run_config.json").read_text())["run"]["init_checkpoint"]


def test_a_classifier_starts_from_the_default_says_so_and_needs_it_only_once(
    bundled, classify, run_script, texts
):
    printed, folder = classify()
    assert DEFAULT_LINE in printed and "25 variables matched" in printed
    assert initial(folder) == NAME
    assert json.loads((folder / "albert_config.json").read_text())["hidden_size"] == 16
    again, _ = classify()
    assert "already trained" in again
    shutil.rmtree(bundled)
    done = run_script(run_classifier, "--do_eval", f"--eval_file={texts}", f"--output_dir={folder}")
    assert done.returncode == 0, done.stderr
    assert DEFAULT_LINE not in done.stdout


@pytest.fixture
def opened(tmp_path):
    """Returns the configuration, vocabulary size and initial weights that flags mean."""

    def opened(*given):
        arguments = f"--output_dir={tmp_path}/out", *given
        with parsed_flags(run_classifier.define_flags, *arguments):
            task, run = shared.open_task(TextClassificationTask, {"labels": ("a", "b")})
            return task.config, task.tokenizer.vocab_size, run.init_checkpoint

    return opened


@pytest.mark.parametrize("init", [(), ("--init_checkpoint=none",), ("--init_checkpoint=",)])
def test_another_configuration_and_vocabulary_mean_random_weights(bundled, opened, tmp_path, init):
    other = dataclasses.replace(CONFIG, vocab_size=len(PIECES) + 1, hidden_size=4)
    other.to_json(str(tmp_path / "other.json"))
    (tmp_path / "other.txt").write_text("\n".join([*PIECES, "moon"]) + "\n")
    arguments = (
        f"--albert_config_file={tmp_path}/other.json",
        f"--vocab_file={tmp_path}/other.txt",
    )
    config, vocab_size, initial = opened("--do_train", *arguments, *init)
    assert (config, vocab_size) == (other, len(PIECES) + 1) and not initial


@pytest.mark.parametrize("init", [(), ("--init_checkpoint=none",)])
def test_a_vocabulary_without_a_configuration_is_not_mixed_with_the_default(
    bundled, opened, tmp_path, init
):
    with pytest.raises(AlbertError, match="config_file` is needed: there is no `init_checkpoint`"):
        opened("--do_train", f"--vocab_file={tmp_path}/vocab.txt", *init)


def test_pretraining_needs_a_configuration_or_weights_with_one(run_script, tmp_path):
    records = ROOT / "tests/golden/tf1_records/pretrain_128.tfrecord"
    arguments = (f"--input_file={records}", f"--output_dir={tmp_path}/run")
    done = run_script(run_pretraining, *arguments)
    assert done.returncode == 1
    assert "--albert_config_file is needed: there is no --init_checkpoint" in done.stderr
    done = run_script(run_pretraining, *arguments[1:])
    assert done.returncode == 1 and "--do_train needs --input_file" in done.stderr
