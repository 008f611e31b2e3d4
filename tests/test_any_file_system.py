# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job without a disk: all inputs and outputs are below ram://.

TensorFlow's file system in memory stands for buckets. Code that opens a path by other means than
tf.io.gfile finds nothing there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

import export_tfhub
import run_classifier
import run_pretraining
from albert_tf.io import files
from data_prep import (
    create_pretraining_data,
    split_sentences,
    train_sentencepiece,
    verify_records,
)
from tests.support.builders import tiny_config
from tests.support.self_checks import checked_in_this_process

DEMO = Path(__file__).parents[1] / "demo/data"
ROOT = "ram://any-file-system"
VOCABULARY = f"{ROOT}/vocabulary/books.model"
CONFIG = tiny_config(400, max_position_embeddings=64)
PRETRAINING = {
    "input_file": f"{ROOT}/records/train",
    "albert_config_file": f"{ROOT}/config.json",
    "output_dir": f"{ROOT}/pretrained",
    "train_batch_size": 8,
    "num_warmup_steps": 2,
    "save_checkpoints_steps": 2,
    "log_every_steps": 2,
}
CLASSIFIER = {
    "task_name": "custom",
    "do_train": True,
    "do_eval": True,
    "do_predict": True,
    "init_checkpoint": f"{ROOT}/pretrained",
    "output_dir": f"{ROOT}/classifier",
    "train_file": f"{ROOT}/authors/train.tsv",
    "eval_file": f"{ROOT}/authors/dev.tsv",
    "predict_file": f"{ROOT}/authors/dev.tsv",
    "text_column": "sentence",
    "label_column": "author",
    "max_seq_length": 32,
    "train_batch_size": 8,
    "num_train_epochs": 1,
}


@pytest.fixture
def run(run_script, tmp_path, monkeypatch):
    """Runs scripts in an empty folder, which must stay empty."""
    # A path that is mistaken for a local one would be created here.
    monkeypatch.chdir(tmp_path)

    def run(module, **flags):
        done = run_script(module, *(f"--{name}={value}" for name, value in flags.items())).ok()
        return done.stdout

    yield run
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(autouse=True)
def inputs():
    """Some chapters, some labelled sentences and a configuration, in memory."""
    for part in ("train", "heldout"):
        for path in sorted((DEMO / "books" / part).glob("d*.txt")):
            files.write_text(f"{ROOT}/books/{part}/{path.name}", path.read_text("utf-8")[:40_000])
    for part in ("train", "dev"):
        lines = (DEMO / "authors" / f"{part}.tsv").read_text("utf-8").splitlines()[:40]
        files.write_text(f"{ROOT}/authors/{part}.tsv", "\n".join(lines) + "\n")
    CONFIG.to_json(f"{ROOT}/config.json")
    yield
    tf.io.gfile.rmtree(ROOT)


def prepare_records(run, **record_formats):
    """Runs the scripts of data_prep; takes the format of the records of each part."""
    for part in record_formats:
        run(
            split_sentences,
            input_file=f"{ROOT}/books/{part}/*.txt",
            output_file=f"{ROOT}/text/{part}.txt",
        )
    run(
        train_sentencepiece,
        input_file=f"{ROOT}/text/train.txt",
        output_prefix=VOCABULARY.removesuffix(".model"),
        vocab_size=CONFIG.vocab_size,
    )
    for part, record_format in record_formats.items():
        run(
            create_pretraining_data,
            input_file=f"{ROOT}/text/{part}.txt",
            output_dir=f"{ROOT}/records/{part}",
            spm_model_file=VOCABULARY,
            max_seq_length=64,
            record_format=record_format,
            num_shards=2,
            num_workers=1,
        )
        run(verify_records, input_file=f"{ROOT}/records/{part}")
    assert "[CLS]" in run(verify_records, input_file=f"{ROOT}/records/train", num_examples=2)


def check_checkpoints(*steps):
    kept = tf.io.gfile.glob(f"{ROOT}/pretrained/checkpoints/*.index")
    assert sorted(kept) == [f"{ROOT}/pretrained/checkpoints/ckpt-{i}.index" for i in steps]


def check_classifier():
    assert 0 <= files.read_json(f"{ROOT}/classifier/eval_results.json")["accuracy"] <= 1
    assert len(files.read_text(f"{ROOT}/classifier/predictions.tsv").splitlines()) == 40


def test_a_short_chain_runs_with_all_paths_below_ram(run):
    """Runs the demo with half of the books, no evaluation in pretraining, and one export."""
    prepare_records(run, train="compact")
    run(run_pretraining, **PRETRAINING, num_train_steps=4, keep_checkpoint_max=1)
    check_checkpoints(4)
    run(run_classifier, **CLASSIFIER, freeze="encoder")
    check_classifier()
    export = f"{ROOT}/export"
    with checked_in_this_process():
        run(export_tfhub, albert_directory=f"{ROOT}/pretrained", export_path=export)
    assert json.loads(files.read_text(f"{export}/self_check.json"))["probes"]
    encoder = tf.saved_model.load(export)
    assert encoder.do_lower_case.numpy() and hasattr(encoder, "mlm")
