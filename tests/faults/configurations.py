# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands to kill and their data: tiny models that save at almost every step."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.data_prep.pretraining_build import build_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.tokenization.tokenizer import Tokenizer
from tests import test_run_classifier, test_run_race, test_run_squad, test_run_tagger
from tests import test_run_embedder as embedder
from tests.faults.kills import Configuration
from tests.support.builders import tiny_config, write_vocabulary

WORDS = [f"w{i}" for i in range(95)]
CONFIG = tiny_config(100, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
BATCH = 8


def write_data(folder: Path) -> None:
    """Writes the data of all configurations."""
    rng = np.random.default_rng(0)
    CONFIG.to_json(str(folder / "config.json"))
    write_vocabulary(folder, WORDS)
    lines = [" ".join(rng.choice(WORDS, 9)) if i % 20 else "" for i in range(400)]
    (folder / "text.txt").write_text("\n".join(lines))
    for name, options in (
        ("masked", PretrainingOptions(max_seq_length=32, dupe_factor=3, num_shards=2)),
        ("compact", PretrainingOptions(max_seq_length=32, record_format="compact", num_shards=2)),
    ):
        vocabulary = Tokenizer.from_file(str(folder / "vocab.txt"))
        text, output = str(folder / "text.txt"), str(folder / name)
        build_pretraining_data([text], vocabulary, output, options)
    _write_classifier(folder / "classifier")
    _write_squad(folder / "squad")
    _write_race(folder / "race")
    _write_tags(folder / "tags")
    _write_pairs(folder / "pairs")


def _write_classifier(folder: Path) -> None:
    folder.mkdir()
    rng = random.Random(8)
    words = ["fine", "awful", *test_run_classifier.WORDS]
    _write_model_files(folder, words, tiny_config(len(words) + 5, max_position_embeddings=16))
    for name, count in (("train", 96), ("dev", 24), ("new", 12)):
        rows = []
        for _ in range(count):
            word = rng.choice(["fine", "awful"])
            # A few labels are wrong, so that the accuracy goes up and down.
            label = word if rng.random() < 0.8 else rng.choice(["fine", "awful"])
            rows.append((test_run_classifier.text_with(word, rng), label))
        test_run_classifier.write_tsv(folder / f"{name}.tsv", [("text", "label"), *rows])


def _write_squad(folder: Path) -> None:
    folder.mkdir()
    _write_model_files(folder, test_run_squad.WORDS, test_run_squad.CONFIG)
    content = test_run_squad.squad_json("2.0")
    for name in ("predict", "eval", "train"):
        (folder / f"{name}.json").write_text(json.dumps(content))
        content["data"][0]["paragraphs"][0]["qas"].pop()


def _write_race(folder: Path) -> None:
    folder.mkdir()
    _write_model_files(folder, test_run_race.VOCABULARY, test_run_race.CONFIG)
    for split in ("train", "dev", "test"):
        test_run_race.write_race(folder / "RACE", split, 4)
    os.unlink(folder / "RACE/dev/high/3.txt")


def _write_tags(folder: Path) -> None:
    folder.mkdir()
    _write_model_files(folder, test_run_tagger.WORDS, test_run_tagger.CONFIG)
    test_run_tagger.write_columns(folder, train=40, eval=10, predict=5)


def _write_pairs(folder: Path) -> None:
    folder.mkdir()
    _write_model_files(folder, embedder.WORDS, embedder.CONFIG)
    for name, count in (("train", 80), ("eval", 8), ("predict", 6)):
        rows = map(json.dumps, embedder.pairs(count, name))
        (folder / f"{name}.jsonl").write_text("\n".join(rows))


def _write_model_files(folder: Path, words: Sequence[str], config: AlbertConfig) -> None:
    """Writes the vocabulary, and the configuration of a smaller model."""
    write_vocabulary(folder, words)
    sizes = {"embedding_size": 8, "hidden_size": 16, "intermediate_size": 32}
    config = dataclasses.replace(config, num_hidden_layers=1, **sizes)
    config.to_json(str(folder / "config.json"))


Arguments = Callable[[Path, Path], Sequence[str]]


def _pretraining(*more: str, data: str = "masked") -> Arguments:
    return lambda folder, output: [
        f"--input_file={folder / data}",
        f"--albert_config_file={folder / 'config.json'}",
        f"--output_dir={output}",
        f"--train_batch_size={BATCH}",
        "--num_train_steps=16",
        "--num_warmup_steps=4",
        "--learning_rate=0.01",
        "--save_checkpoints_steps=1",
        "--keep_checkpoint_max=3",
        "--log_every_steps=1",
        *more,
    ]


def _fine_tuning(data: str, *more: str) -> Arguments:
    return lambda folder, output: [
        "--do_train",
        "--do_eval",
        "--do_predict",
        f"--albert_config_file={folder / data / 'config.json'}",
        f"--vocab_file={folder / data / 'vocab.txt'}",
        f"--output_dir={output}",
        "--train_batch_size=8",
        "--eval_batch_size=8",
        "--learning_rate=0.01",
        "--warmup_step=2",
        "--precision=float32",
        "--save_checkpoints_steps=3",
        "--keep_checkpoint_max=2",
        "--log_every_steps=1",
        "--eval_every_steps=2",
        *(flag.format(folder / data) for flag in more),
    ]


def _classifier(*more: str) -> Arguments:
    names = (("train", "train"), ("eval", "dev"), ("predict", "new"))
    paths = [f"--{flag}_file={{}}/{name}.tsv" for flag, name in names]
    return _fine_tuning("classifier", *paths, "--max_seq_length=10", *more)


def _building(*more: str) -> Arguments:
    return lambda folder, output: [
        f"--input_file={folder / 'text.txt'}",
        f"--vocab_file={folder / 'vocab.txt'}",
        f"--output_dir={output}",
        "--num_shards=8",
        "--max_seq_length=32",
        *more,
    ]


_SQUAD = [f"--{name}_file={{}}/{name}.json" for name in ("train", "eval", "predict")]
_SQUAD += ["--version=2.0", "--max_seq_length=32", "--max_query_length=8", "--train_step=16"]
_RACE = ["--data_dir={}", "--max_seq_length=24", "--max_qa_length=8", "--train_step=16"]
_TAGS = [f"--{name}_file={{}}/{name}.txt" for name in ("train", "eval", "predict")]
_TAGS += ["--max_seq_length=8", "--train_step=16"]
_PAIRS = [f"--{name}_file={{}}/{name}.jsonl" for name in ("train", "eval", "predict")]
_PAIRS += ["--train_step=16", "--gradient_accumulation_steps=2", "--dropout=0.1"]
_EVALUATED = ("checkpoints", "best")
_SEEDS = [f"seed-{seed}/{folder}" for seed in (7, 8) for folder in _EVALUATED]
_BUILT = ("_build", "_build", "")
TRAIN, CLASSIFY, BUILD = "run_pretraining", "run_classifier", "data_prep.create_pretraining_data"

CONFIGURATIONS = {
    c.name: c
    for c in (
        Configuration("offline masks", TRAIN, _pretraining()),
        Configuration("dynamic masks", TRAIN, _pretraining(data="compact")),
        Configuration("bfloat16", TRAIN, _pretraining("--precision=mixed_bfloat16")),
        Configuration("XLA", TRAIN, _pretraining("--jit_compile=true")),
        Configuration(
            "mirrored, dynamic masks, accumulation",
            TRAIN,
            _pretraining("--strategy=mirrored", "--gradient_accumulation_steps=2", data="compact"),
            cpus=2,
        ),
        Configuration(
            "loops of steps",
            TRAIN,
            _pretraining("--save_checkpoints_steps=4", "--log_every_steps=4"),
        ),
        Configuration(
            "evaluation",
            TRAIN,
            lambda folder, output: [
                *_pretraining("--do_eval", "--eval_every_steps=2", "--save_checkpoints_steps=2")(
                    folder, output
                ),
                f"--eval_input_file={folder / 'compact'}",
                "--max_eval_steps=2",
            ],
            _EVALUATED,
        ),
        Configuration(
            "classifier",
            CLASSIFY,
            _classifier("--train_step=40", "--early_stopping_evals=4"),
            _EVALUATED,
        ),
        Configuration(
            "classifier, seeds",
            CLASSIFY,
            _classifier(
                "--train_step=8", "--num_seeds=2", "--random_seed=7", "--label_separator=|"
            ),
            _SEEDS,
        ),
        Configuration(
            "classifier, windows",
            CLASSIFY,
            _classifier("--train_step=16", "--max_seq_length=6", "--doc_stride=2"),
            _EVALUATED,
        ),
        Configuration("SQuAD", "run_squad", _fine_tuning("squad", *_SQUAD), _EVALUATED),
        Configuration("multiple choice", "run_race", _fine_tuning("race", *_RACE), _EVALUATED),
        Configuration("tagging", "run_tagger", _fine_tuning("tags", *_TAGS), _EVALUATED),
        Configuration("embedding", "run_embedder", _fine_tuning("pairs", *_PAIRS), _EVALUATED),
        Configuration("builder", BUILD, _building("--dupe_factor=40"), _BUILT),
        Configuration(
            "builder, compact, 2 workers",
            BUILD,
            _building("--record_format=compact", "--num_workers=2"),
            _BUILT,
        ),
    )
}
