# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands of pages run as pasted, on small files and models, and print what the pages show.

The commands of a page run in their order in one shell. Settings that take long are replaced.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.keras2 import keras
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.weights.checkpoint import write_tf2
from tests.support import stand_ins
from tests.support.pages import (
    ROOT,
    assert_shown,
    code_blocks,
    replaced,
    run_commands,
    run_python_blocks,
    shell_commands,
)
from tests.support.releases import write_archive
from tests.support.weights import weights_of

GLUE = ("cola", "sst-2", "sts-b", "rte", "wnli")
#: Commands that are not run, by their beginnings, and why; all others of these pages are.
NOT_RUN = {
    "README": {
        "make demo": "tests/test_any_file_system.py runs the demo, `make test` is this",
        "make setup": "it makes the environment that runs this",
        "python run_classifier.py --do_train --do_eval --train_file=demo": "tests/test_wheel.py",
    },
    "command_line": {},
    "finetuning": {},
    "export": {
        "export TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "a setting of any process; only speed changes",
    },
    "checkpoints": {
        "python -m benchmarks.interchange": "it needs environments with other libraries",
    },
}


def page(name):
    return (ROOT / ("README.md" if name == "README" else f"docs/{name}.md")).read_text("utf-8")


def read(path):
    return json.loads(path.read_text())


def is_run(name, command):
    return not command.text.startswith(tuple(NOT_RUN[name]))


def run_page_commands(name, replacements, folder, environment=None):
    """Runs a page's commands and checks that they print what the page shows.

    Args:
      name: of the page.
      replacements: parts of the page and what to run or to expect in place of them.
      folder: the working folder.
      environment: environment variables to add.

    Returns:
      What each command of the page has printed.
    """
    commands = [c for c in shell_commands(replaced(page(name), replacements)) if is_run(name, c)]
    printed = run_commands([command.text for command in commands], folder, environment)
    for command, output in zip(commands, printed):
        assert_shown(command.shown, output)
    return printed


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(1)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("Written to runs/a.", "Written to runs/a; b."),
        ("a\nb", "b a"),
        ("loss 1.5  accuracy 2%", "loss 1.5"),
        ("weights match", "3 weights matched"),
        ("5 answers, mean of […] runs", "5 answers, runs"),
    ],
)
def test_an_output_that_differs_is_found(shown, printed):
    with pytest.raises(AssertionError, match="not printed"):
        assert_shown(shown, printed)


def test_figures_and_what_a_page_leaves_out_may_differ():
    shown = "read 5 of […]\n…\n[[ 1.5e-3 [b'x'] True […]]]"
    assert_shown(shown, "W\nread -1 of a\n[[0.2\n [b''] False a]]")


def write_squad(folder):
    for part in ("train-v1.1", "dev-v1.1", "train-v2.0", "dev-v2.0"):
        (folder / f"{part}.json").write_text(json.dumps(stand_ins.squad_file(part[-3:])))


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    stand_ins.write_pretrained(tmp_path / "runs/base")
    stand_ins.write_glue(tmp_path / "glue", GLUE[1:3])
    stand_ins.write_race(tmp_path / "RACE")
    write_squad(tmp_path)
    output = "--output_dir=runs/"
    shorter = {
        f"{output}{name}": f"{output}{name} --train_step=2" for name in ("glue", "squad", "race")
    }
    (printed,) = run_page_commands("README", shorter, tmp_path)
    assert "average" in printed.partition("GLUE, dev")[2]
    assert "exact" in read(tmp_path / "runs/squad/eval_results.json")
    assert (tmp_path / "runs/race/predictions.tsv").exists()


@pytest.mark.slow
def test_the_commands_of_albert_run(tmp_path):
    stand_ins.write_classifier(tmp_path / "runs/rte", ("entailment", "not_entailment"))
    stand_ins.write_squad_run(tmp_path / "runs/squad")
    stand_ins.write_race_run(tmp_path / "runs/race")
    for name in ("texts.txt", "article.txt"):
        (tmp_path / name).write_text("Ada wrote it.\nIn 1843.\n")
    with gzip.open(tmp_path / "reviews.txt.gz", "wt") as f:
        f.write("A fine book.\nA dull one.\n")
    printed = run_page_commands(
        "command_line", {"--num_train_epochs=25": "--train_step=2"}, tmp_path
    )
    text = page("command_line")
    (shown,) = [block.text for block in code_blocks(text) if block.language == "text"]
    assert_shown(shown, printed[1])
    assert np.load(tmp_path / "vectors.npy").shape == (2, 256)
    assert len((tmp_path / "labels.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_the_page_about_fine_tuning_runs(tmp_path):
    text = page("finetuning")
    stand_ins.write_pretrained(tmp_path / "runs/base")
    stand_ins.write_squad_run(tmp_path / "runs/squad")
    stand_ins.write_glue(tmp_path / "glue", GLUE)
    stand_ins.write_race(tmp_path / "race")
    shutil.copy(stand_ins.VOCABULARY, tmp_path / "30k-clean.model")
    write_squad(tmp_path)
    paragraph = {"context": "Ada wrote it.", "qas": [{"id": "n", "question": "Who wrote it?"}]}
    new = {"version": "2.0", "data": [{"title": "T", "paragraphs": [paragraph]}]}
    (tmp_path / "new.json").write_text(json.dumps(new))
    answers = {f"{kind}{i}": "sea" for kind in "qn" for i in range(21)}
    (tmp_path / "predictions.json").write_text(json.dumps(answers))
    (row,) = [block.text for block in code_blocks(text) if block.language == "json"]
    pairs = "question,answer,score\nWho?,Ada.,1\nWhen?,Now.,2.5\nWhy?,It is.,4\n"
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text(row)
    for part in ("pairs", "dev"):
        (tmp_path / f"{part}.csv").write_text(pairs)
    shorter = {
        "--train_step=150 --eval_every_steps=50": "--train_step=4 --eval_every_steps=2",
        "--train_step=1500": "--train_step=2",
        "--num_train_epochs=3": "--train_step=2",
        "--num_train_epochs=2 \\\n    --eval_every_steps=100": "--train_step=2",
        "--output_dir=runs/score": "--output_dir=runs/score --train_step=2",
        "--output_dir=runs/mine": "--output_dir=runs/mine --train_step=2",
        "\nrainforest\n": "\n…\n",
        # Runs whose predictions are averaged.
        "$ python -m albert_tf.tasks.ensemble": "$ mkdir runs/random; for seed "
        "in 12345 12346 12347; do cp -r runs/squad11 runs/random/seed-$seed; done\n"
        "$ python -m albert_tf.tasks.ensemble",
    }
    run_page_commands("finetuning", shorter, tmp_path)
    assert (tmp_path / "runs/ensemble/nbest_predictions.json").exists()
    assert "pearson" in read(tmp_path / "runs/score/eval_results.json")


@pytest.mark.slow
def test_the_page_about_exports_runs(tmp_path, monkeypatch):
    text = page("export")
    stand_ins.write_pretrained(tmp_path / "runs/base")
    stand_ins.write_squad_run(tmp_path / "runs/squad")
    stand_ins.write_classifier(tmp_path / "runs/authors")
    changes = {"pip install '.[onnx]'": "true"}
    run_page_commands("export", changes, tmp_path)
    monkeypatch.chdir(tmp_path)
    given = {
        "first": ["A text."],
        "second": ["Another one."],
        "inputs": {
            f"input_{name}": tf.ones([1, 4], tf.int32) for name in ("word_ids", "mask", "type_ids")
        },
        "positions": tf.constant([[1, 2]]),
        "tokenizer": stand_ins.tokenizer(),
    }
    if not importlib.util.find_spec("ai_edge_litert"):
        module = "from tensorflow.lite.python.interpreter"
        text = replaced(text, {"from ai_edge_litert.interpreter": module})
    names, _ = run_python_blocks(text, given)
    assert np.isfinite(names["pooled"]).all() and names["pooled"].shape == (1, 16)


@pytest.mark.slow
def test_the_page_about_checkpoints_runs(tmp_path, hub, monkeypatch):
    write_archive(tmp_path / "albert_base_v2.tar.gz")
    pretrained = AlbertPretrainer(stand_ins.config())
    folder = tmp_path / "runs/demo/pretrained"
    write_tf2(str(folder), pretrained.config, stand_ins.tokenizer(), weights_of(pretrained))
    (tmp_path / "train.tsv").write_text("text\tlabel\nA\tx\nB\ty\n")
    paragraphs = "\n\n".join("\n".join(stand_ins.sentences()[i : i + 8]) for i in range(0, 480, 8))
    (tmp_path / "heldout.txt").write_text(paragraphs)
    shorter = {
        "pip install -e '.[hub]'": "true",
        "--output_dir=runs/mine": "--output_dir=runs/mine --train_step=2 --max_seq_length=16",
    }
    run_page_commands("checkpoints", shorter, tmp_path, environment=hub)
    monkeypatch.chdir(tmp_path)
    ones = np.ones([1, 4], np.int32)
    given = {"ids": ones, "mask": ones, "types": 0 * ones, "positions": ones[:, :2]}
    names, _ = run_python_blocks(page("checkpoints"), given)
    assert set(names["outputs"]) >= {"sequence_output", "mlm_logits", "sop_logits"}
    inputs = {"input_word_ids": ones, "input_mask": ones, "input_type_ids": 0 * ones}
    assert names["own"](inputs).shape == (1, 3)
