# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains models for the same time with several methods, and scores them in the same way.

  python -m benchmarks.time_to_quality run --train_file=train.txt --heldout_file=heldout.txt \\
    --spm_model_file=books.model --albert_config_file=small.json --minutes=20,60 \\
    --peer_python=.venv-peers/torch/bin/python --glue_dir=glue --output_dir=runs/quality
  python -m benchmarks.time_to_quality plot --results=runs/quality/results.jsonl --output_file=a.png

The methods: "budget" builds compact records and runs run_pretraining.py --time_budget,
"transformers" trains AlbertForMaskedLM with torch.compile. The time of each includes
start-up and processing of the text. Every model is scored by whole words of the held-out text and,
with --glue_dir, fine-tuned on four tasks. Appends one line to results.jsonl for each model, and
skips models that already have one; a model that was interrupted begins anew.
transformers always projects embeddings, so the configuration must have different embedding and
hidden sizes.
"""

from __future__ import annotations

import os
import time

from absl import flags

from albert_tf.cli.flags import define_path
from benchmarks.common import add_lines, describe_machine, read_lines, save_figure
from benchmarks.random_step import PRECISIONS
from benchmarks.subcommands import run_command
from benchmarks.time_to_quality.methods import LOG_FILE, METHODS, Trial

RESULTS_FILE = "results.jsonl"
_PASSAGES = 1500

FLAGS = flags.FLAGS


def _define_run_flags() -> None:
    define_path("train_file", None, "Text to train on, one sentence per line.", required=True)
    define_path("heldout_file", None, "Text to score on.", required=True)
    define_path("spm_model_file", None, "Vocabulary of all models.", required=True)
    define_path("albert_config_file", None, "Shape of all models, a JSON file.", required=True)
    define_path("output_dir", None, "Folder for models and results.jsonl.", required=True)
    define_path("peer_python", None, "Python with torch and transformers, for that method.")
    define_path("glue_dir", None, "Folder with SST-2/, CoLA/, STS-B/, RTE/; none: not fine-tuned.")
    flags.DEFINE_list("minutes", ["20"], "Times to train for.")
    flags.DEFINE_list("methods", list(METHODS), f"Of {', '.join(METHODS)}.")
    flags.DEFINE_list("seeds", ["1"], "Seeds; each is another model.")
    flags.DEFINE_float("peer_learning_rate", 1e-3, "Peak learning rate of transformers' AdamW.")
    flags.DEFINE_integer("peer_batch_size", 32, "Sequences of 128 in its batch.")
    flags.DEFINE_float(
        "peer_short_share", 0.0, "Share of its time that goes to blocks of 32 first."
    )
    flags.DEFINE_float("peer_masked_share", 0.15, "Share of its positions that are masked.")
    flags.DEFINE_enum("peer_precision", "bf16", list(PRECISIONS), "Compute type of its products.")


def _run() -> None:
    from benchmarks.time_to_quality.scoring import read_passages, score

    path = os.path.join(FLAGS.output_dir, RESULTS_FILE)
    os.makedirs(FLAGS.output_dir, exist_ok=True)
    lines = read_lines(path)
    passages = read_passages(FLAGS.heldout_file, _PASSAGES)
    for minutes, method, seed in (
        (float(m), method, int(s))
        for m in FLAGS.minutes
        for method in FLAGS.methods
        for s in FLAGS.seeds
    ):
        key = {"method": method, "minutes": minutes, "seed": seed}
        if any(key.items() <= line.items() for line in lines):
            continue
        trial = Trial(os.path.join(FLAGS.output_dir, f"{method}-{minutes:g}-{seed}"), minutes, seed)
        print(f"{method}, {minutes:g} minutes, seed {seed}: progress in {trial.folder}/{LOG_FILE}")
        began = time.monotonic()
        described = METHODS[method](trial)
        took = described.get("minutes") or (time.monotonic() - began) / 60
        line = {**key, "took_minutes": took}
        line.update(score(trial.model, passages))
        if FLAGS.glue_dir:
            line.update(trial.fine_tune(FLAGS.glue_dir))
        line.update(training=described, machine=describe_machine())
        add_lines(path, [line])
        tasks = f", tasks {line['downstream']:.1%}" if FLAGS.glue_dir else ""
        print(
            f"took {line['took_minutes']:.1f} minutes: {line['word_accuracy']:.1%} of the words, "
            f"{line['bits_per_character']:.3f} bits per character{tasks}",
            flush=True,
        )


def _define_plot_flags() -> None:
    define_path("results", None, "Files of results, of `run`.", required=True)
    define_path("output_file", None, "PNG file to write.", required=True)


def _plot() -> None:
    from benchmarks.time_to_quality.plot import draw

    lines = [line for path in FLAGS.results.split(",") for line in read_lines(path)]
    save_figure(draw(lines), FLAGS.output_file)


#: What `script.run` takes, by the first argument.
COMMANDS = {"run": (_run, _define_run_flags), "plot": (_plot, _define_plot_flags)}

if __name__ == "__main__":
    run_command(COMMANDS, __doc__)
