# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains models for the same time with several methods, and scores them in the same way.

  python -m benchmarks.time_to_quality --train_file=train.txt --heldout_file=heldout.txt \\
    --spm_model_file=books.model --albert_config_file=small.json --minutes=20,60 \\
    --peer_python=.venv-peers/torch/bin/python --glue_dir=glue --output_dir=runs/quality

The methods: "budget" builds compact records and runs run_pretraining.py --time_budget. "release"
builds masked records and trains on them as in the paper, with the learning rate scaled to the
batch. "transformers" trains AlbertForMaskedLM with torch.compile. The time of each includes
start-up and processing of the text. Every model is scored by whole words of the held-out text and,
with --glue_dir, fine-tuned on SST-2. Appends one line to results.jsonl for each model, and skips
models that already have one. transformers always projects embeddings, so the configuration must
have different embedding and hidden sizes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path, define_paths
from albert_tf.errors import AlbertError
from albert_tf.io import files
from benchmarks import machine
from benchmarks.json_lines import add_lines, read_lines

RESULTS_FILE = "results.jsonl"
_PEER = os.path.join(os.path.dirname(__file__), "peer.py")
_PASSAGES = 1500
#: What "release" does: the paper's rate for its batch, see run_pretraining.py, and the share of its
#: steps that warm up.
_RELEASE_BATCH, _RELEASE_WARM_UP = 64, 0.025

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    define_paths("train_file", None, "Text to train on, one sentence per line.", required=True)
    define_path("heldout_file", None, "Text to score on.", required=True)
    define_path("spm_model_file", None, "Vocabulary of all models.", required=True)
    define_path("albert_config_file", None, "Shape of all models, a JSON file.", required=True)
    define_path("output_dir", None, "Folder for models and results.jsonl.", required=True)
    define_path("peer_python", None, "Python with torch and transformers, for that way.")
    define_path("glue_dir", None, "Folder with SST-2/; none: models are not fine-tuned.")
    flags.DEFINE_list("minutes", ["20"], "Times to train for.")
    flags.DEFINE_list("ways", list(WAYS), f"Of {', '.join(WAYS)}.")
    flags.DEFINE_list("seeds", ["1"], "Seeds; each is another model.")
    flags.DEFINE_float("peer_learning_rate", 1e-3, "Peak learning rate of transformers' AdamW.")
    flags.DEFINE_integer("peer_batch_size", 32, "Sequences of 128 in its batch.")
    flags.DEFINE_float(
        "peer_short_share", 0.0, "Share of its time that goes to blocks of 32 first."
    )


def train_budget(folder: str, minutes: float, seed: int) -> dict[str, Any]:
    """Trains as `--time_budget` plans."""
    began = time.monotonic()
    records = _build_records(folder, ["--record_format=compact"])
    left = 60 * minutes - (time.monotonic() - began)
    _pretrain(folder, records, seed, [f"--time_budget={left:.0f}s"])
    return {"plan": files.read_object(f"{folder}/run/plan.json")}


def train_release(folder: str, minutes: float, seed: int) -> dict[str, Any]:
    """Trains as the paper does, for as many steps as fit into the time."""
    began = time.monotonic()
    records = _build_records(folder, ["--dupe_factor=10"])
    batch = [f"--train_batch_size={_RELEASE_BATCH}"]
    # The schedule needs the number of steps, so a short run measures the speed.
    _pretrain(f"{folder}/speed", records, seed, [*batch, "--num_train_steps=30"])
    logged = read_lines(f"{folder}/speed/run/metrics.jsonl")
    rate = max(line.get("examples_per_second", 0) for line in logged)
    left = 60 * minutes - (time.monotonic() - began)
    steps = max(1, int(left * rate / _RELEASE_BATCH))
    warm_up = int(_RELEASE_WARM_UP * steps)
    schedule = [f"--num_train_steps={steps}", f"--num_warmup_steps={warm_up}"]
    _pretrain(folder, records, seed, [*batch, *schedule])
    return {"steps": steps}


def train_transformers(folder: str, minutes: float, seed: int) -> dict[str, Any]:
    """Trains AlbertForMaskedLM of transformers; see peer.py."""
    if not FLAGS.peer_python:
        raise AlbertError("The way transformers needs --peer_python.")
    tokenizer = f"{folder}/tokenizer"
    os.makedirs(tokenizer, exist_ok=True)
    shutil.copy(FLAGS.spm_model_file, f"{tokenizer}/spiece.model")
    command = [FLAGS.peer_python, _PEER, "--text", *FLAGS.train_file.split(",")]
    options = {
        "tokenizer_dir": tokenizer,
        "albert_config_file": FLAGS.albert_config_file,
        "output_dir": f"{folder}/run",
        "minutes": minutes,
        "learning_rate": FLAGS.peer_learning_rate,
        "batch_size": FLAGS.peer_batch_size,
        "short_share": FLAGS.peer_short_share,
        "seed": seed,
    }
    printed = _run([*command, *(f"--{name}={value}" for name, value in options.items())])
    return json.loads(printed.splitlines()[-1])


WAYS: dict[str, Callable[[str, float, int], dict[str, Any]]] = {
    "budget": train_budget,
    "release": train_release,
    "transformers": train_transformers,
}


def _build_records(folder: str, options: Sequence[str]) -> str:
    output = f"{folder}/records"
    _run(
        [
            *(sys.executable, "data_prep/create_pretraining_data.py", "--max_seq_length=128"),
            *(f"--input_file={FLAGS.train_file}", f"--spm_model_file={FLAGS.spm_model_file}"),
            *(f"--output_dir={output}", "--num_workers=2", *options),
        ]
    )
    return output


def _pretrain(folder: str, records: str, seed: int, options: Sequence[str]) -> None:
    _run(
        [
            *(sys.executable, "run_pretraining.py", "--do_train", f"--input_file={records}"),
            *(f"--albert_config_file={FLAGS.albert_config_file}", f"--output_dir={folder}/run"),
            *("--precision=auto", "--log_every_steps=10", f"--random_seed={seed}", *options),
        ]
    )


def _fine_tune(model: str, folder: str, seed: int) -> float:
    """Returns the accuracy on SST-2's development set."""
    _run(
        [
            *(sys.executable, "run_classifier.py", "--do_train", "--do_eval", "--task_name=sst-2"),
            *(f"--data_dir={FLAGS.glue_dir}", f"--init_checkpoint={model}", "--train_step=500"),
            *("--max_seq_length=64", "--eval_every_steps=125", f"--output_dir={folder}"),
            f"--random_seed={seed}",
        ]
    )
    return files.read_object(f"{folder}/eval_results.json")["accuracy"]


def _run(command: list[str]) -> str:
    """Runs a command and returns what it prints."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AlbertError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-800:]}")
    return done.stdout


def _main() -> None:
    from benchmarks.time_to_quality.scoring import read_passages, score

    path = os.path.join(FLAGS.output_dir, RESULTS_FILE)
    os.makedirs(FLAGS.output_dir, exist_ok=True)
    lines = read_lines(path)
    passages = read_passages(FLAGS.heldout_file, _PASSAGES)
    for minutes, way, seed in (
        (float(m), w, int(s)) for m in FLAGS.minutes for w in FLAGS.ways for s in FLAGS.seeds
    ):
        key = {"way": way, "minutes": minutes, "seed": seed}
        if any(key.items() <= line.items() for line in lines):
            continue
        folder = os.path.join(FLAGS.output_dir, f"{way}-{minutes:g}-{seed}")
        shutil.rmtree(folder, ignore_errors=True)
        began = time.monotonic()
        described = WAYS[way](folder, minutes, seed)
        took = (time.monotonic() - began) / 60
        model = f"{folder}/run"
        line = {**key, "took_minutes": took, **score(model, passages)}
        if FLAGS.glue_dir:
            line["sst2_accuracy"] = _fine_tune(model, f"{folder}/sst-2", seed)
        line.update(training=described, machine=machine.describe())
        add_lines(path, [line])
        print(
            f"{way} {minutes:g} min (took {took:.1f}), seed {seed}: words "
            f"{line['word_accuracy']:.1%}, {line['bits_per_character']:.3f} bits a character, "
            f"SST-2 {line.get('sst2_accuracy', float('nan')):.1%}",
            flush=True,
        )


if __name__ == "__main__":
    script.run(_main, define_flags)
