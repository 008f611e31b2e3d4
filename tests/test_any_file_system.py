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

from albert_tf.data_prep import (
    create_pretraining_data,
    split_sentences,
    train_sentencepiece,
    verify_records,
)
from albert_tf.io import files
from albert_tf.scripts import export_tfhub, run_classifier, run_pretraining
from tests.support.builders import tiny_config
from tests.support.self_checks import checked_in_this_process

DEMO = Path(__file__).parents[1] / "demo/data"
ROOT = "ram://any-file-system"
VOCABULARY = f"{ROOT}/vocabulary/books.model"
CONFIG = tiny_config(400, max_position_embeddings=64)


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
    for path in (DEMO / "books/train").glob("d*.txt"):
        files.write_text(f"{ROOT}/books/{path.name}", path.read_text("utf-8")[:40_000])
    for part in ("train", "dev"):
        table = DEMO.parents[1] / f"albert_tf/sample_data/{part}.tsv"
        lines = table.read_text("utf-8").splitlines()[:40]
        files.write_text(f"{ROOT}/authors/{part}.tsv", "\n".join(lines) + "\n")
    CONFIG.to_json(f"{ROOT}/config.json")
    yield
    tf.io.gfile.rmtree(ROOT)


def test_a_short_chain_runs_with_all_paths_below_ram(run):
    """Runs the demo with half of the books, no evaluation in pretraining, and one export."""
    text, records, pretrained = f"{ROOT}/text/train.txt", f"{ROOT}/records", f"{ROOT}/pretrained"
    run(split_sentences, input_file=f"{ROOT}/books/*.txt", output_file=text)
    run(
        train_sentencepiece,
        input_file=text,
        output_prefix=VOCABULARY.removesuffix(".model"),
        vocab_size=CONFIG.vocab_size,
    )
    run(
        create_pretraining_data,
        input_file=text,
        output_dir=records,
        spm_model_file=VOCABULARY,
        max_seq_length=64,
        record_format="compact",
        num_shards=2,
        num_workers=1,
    )
    run(verify_records, input_file=records)
    assert "[CLS]" in run(verify_records, input_file=records, num_examples=2)
    run(
        run_pretraining,
        input_file=records,
        albert_config_file=f"{ROOT}/config.json",
        output_dir=pretrained,
        train_batch_size=8,
        num_train_steps=4,
        num_warmup_steps=2,
        save_checkpoints_steps=2,
        keep_checkpoint_max=1,
        log_every_steps=2,
    )
    kept = tf.io.gfile.glob(f"{pretrained}/checkpoints/*.index")
    assert kept == [f"{pretrained}/checkpoints/ckpt-4.index"]
    classifier = f"{ROOT}/classifier"
    run(
        run_classifier,
        task_name="custom",
        do_train=True,
        do_eval=True,
        do_predict=True,
        freeze="encoder",
        init_checkpoint=pretrained,
        output_dir=classifier,
        train_file=f"{ROOT}/authors/train.tsv",
        eval_file=f"{ROOT}/authors/dev.tsv",
        predict_file=f"{ROOT}/authors/dev.tsv",
        text_column="sentence",
        label_column="author",
        max_seq_length=32,
        train_batch_size=8,
        num_train_epochs=1,
    )
    assert 0 <= files.read_json(f"{classifier}/eval_results.json")["accuracy"] <= 1
    assert len(files.read_text(f"{classifier}/predictions.tsv").splitlines()) == 40
    export = f"{ROOT}/export"
    with checked_in_this_process():
        run(export_tfhub, albert_directory=pretrained, export_path=export)
    assert json.loads(files.read_text(f"{export}/self_check.json"))["probes"]
    encoder = tf.saved_model.load(export)
    assert encoder.do_lower_case.numpy() and hasattr(encoder, "mlm")
