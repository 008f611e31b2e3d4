# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrains ALBERT on six books and fine-tunes a classifier, in 3 to 9 minutes.

  python -m demo.run --output_dir=runs/demo

Runs the project's own scripts, one after the other, and shows the commands. Run it again to
continue after an interruption; finished steps are reused.
"""

from __future__ import annotations

import glob
import json
import math
import os
import statistics
import textwrap
import time
from collections import Counter

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.pretrained import DEFAULT, FOLDER, MANIFEST_FILE
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.run_folder import RESULTS_FILE
from demo.stages import LOG_FILE, Stage, run_stages

BOOKS = "demo/data/books"
AUTHORS = "albert_tf/sample_data"
#: Chapters of other books, which the bundled model has not read.
UNREAD = "benchmarks/data/books_heldout.txt.gz"
#: Small models learn context fastest on short sequences with many masks, and at first with fewer
#: layers; see docs/pretraining.md.
RECORDS = {"max_seq_length": 32, "record_format": "compact", "num_workers": 2, "random_seed": 1}
PRETRAINING = {
    "masked_lm_prob": 0.4,
    "ngram": 1,
    "train_batch_size": 64,
    "num_train_steps": 1200,
    "num_warmup_steps": 100,
    "shallow_layers": 1,
    "num_shallow_steps": 800,
    "learning_rate": 0.008,
    "eval_batch_size": 256,
    "save_checkpoints_steps": 400,
}
CONFIG = "demo/albert_config.json"
#: CONFIG with positions for the records alone. Fine-tuning repeats them for longer texts.
SHORT_CONFIG = "short_config.json"
#: What the classifier is fine-tuned from, as the titles of the stages say it.
STARTS = {
    "pretrained": "weights pretrained here",
    "random": "random weights",
    "bundled": f"the bundled {DEFAULT}",
}
FINE_TUNING = {
    "train_file": f"{AUTHORS}/train.tsv",
    "eval_file": f"{AUTHORS}/dev.tsv",
    "text_column": "sentence",
    "label_column": "author",
    "max_seq_length": 80,
    "train_batch_size": 16,
    "num_train_epochs": 10,
    "random_seed": 1,
}


def define_flags() -> None:
    """Flags of this script."""
    define_path("output_dir", "runs/demo", "Folder for everything the demo makes.")


def stages(out: str) -> list[Stage]:
    """The main job, with its results below the folder `out`."""
    text = {part: f"{out}/text/{part}/sentences.txt" for part in ("train", "heldout")}
    vocabulary = f"{out}/vocabulary/books.model"
    records = {part: f"{out}/records/{part}" for part in ("train", "heldout")}
    pretrained = f"{out}/pretrained"
    short_config = f"{out}/{SHORT_CONFIG}"
    result = [
        Stage(
            f"Split the {what} chapters into sentences",
            os.path.dirname(text[part]),
            "data_prep/split_sentences.py",
            {"input_file": f"{BOOKS}/{part}", "output_file": text[part], "overwrite": True},
            sorted(glob.glob(f"{BOOKS}/{part}/*.txt")),
            seconds=5,
        )
        for part, what in (("train", "training"), ("heldout", "held-out"))
    ]
    result.append(
        Stage(
            "Train a vocabulary",
            os.path.dirname(vocabulary),
            "data_prep/train_sentencepiece.py",
            {
                "input_file": text["train"],
                "output_prefix": vocabulary.removesuffix(".model"),
                "vocab_size": 4000,
                "overwrite": True,
            },
            [text["train"]],
            seconds=10,
        )
    )
    for part, what, dupe_factor in (("train", "training", 10), ("heldout", "held-out", 2)):
        result.append(
            Stage(
                f"Build {what} records",
                records[part],
                "data_prep/create_pretraining_data.py",
                {
                    "input_file": text[part],
                    "output_dir": records[part],
                    "spm_model_file": vocabulary,
                    "dupe_factor": dupe_factor,
                    **RECORDS,
                },
                [text[part], vocabulary],
                seconds=10,
            )
        )
    result.append(
        Stage(
            "Pretrain a tiny ALBERT",
            pretrained,
            "run_pretraining.py",
            {
                "input_file": records["train"],
                "eval_input_file": records["heldout"],
                "output_dir": pretrained,
                "do_train": True,
                "do_eval": True,
                "precision": "auto",
                "albert_config_file": short_config,
                **PRETRAINING,
            },
            [
                short_config,
                *(f"{folder}/manifest.json" for folder in records.values()),
            ],
            seconds=210,
        )
    )
    bundled = os.path.join(FOLDER, DEFAULT)
    unread = f"{out}/bundled/records"
    result += [
        Stage(
            f"Build records of chapters that the bundled {DEFAULT} has not read",
            unread,
            "data_prep/create_pretraining_data.py",
            {
                "input_file": UNREAD,
                "output_dir": unread,
                "spm_model_file": f"{bundled}/spiece.model",
                "dupe_factor": 1,
                **RECORDS,
                "max_seq_length": 128,
            },
            [UNREAD],
            seconds=10,
        ),
        Stage(
            f"Evaluate {DEFAULT} on them",
            f"{out}/bundled/scores",
            "run_pretraining.py",
            {
                "do_train": "false",
                "do_eval": True,
                "eval_input_file": unread,
                "init_checkpoint": DEFAULT,
                "output_dir": f"{out}/bundled/scores",
                "max_eval_steps": 1000,
            },
            [f"{unread}/manifest.json", f"{bundled}/{MANIFEST_FILE}"],
            seconds=25,
        ),
    ]
    starts = {
        "pretrained": (
            {
                "init_checkpoint": pretrained,
                "albert_config_file": CONFIG,
                "spm_model_file": vocabulary,
            },
            [f"{pretrained}/{RESULTS_FILE}", CONFIG, vocabulary],
        ),
        "random": (
            {"albert_config_file": CONFIG, "spm_model_file": vocabulary},
            [CONFIG, vocabulary],
        ),
        # Nothing is said of the model: it is the default.
        "bundled": ({}, [f"{bundled}/{MANIFEST_FILE}"]),
    }
    for start, (model, inputs) in starts.items():
        folder = f"{out}/classifier/{start}"
        result.append(
            Stage(
                f"Fine-tune from {STARTS[start]}",
                folder,
                "run_classifier.py",
                {"do_train": True, "do_eval": True, "output_dir": folder, **model, **FINE_TUNING},
                [*sorted(glob.glob(f"{AUTHORS}/*.tsv")), *inputs],
                seconds=30,
            )
        )
    classifier = f"{out}/classifier/pretrained"
    result += [
        Stage(
            "Export the pretrained classifier as a SavedModel that reads text",
            f"{out}/export",
            "export_tfhub.py",
            {
                "albert_directory": classifier,
                "export_path": f"{out}/export/authors",
                "overwrite": True,
            },
            [f"{classifier}/{RESULTS_FILE}"],
            seconds=15,
        ),
        Stage(
            "Ask the SavedModel",
            f"{out}/answers",
            "demo/ask.py",
            {"saved_model": f"{out}/export/authors", "output_dir": f"{out}/answers"},
            [f"{out}/export/authors/saved_model.pb"],
            seconds=5,
        ),
    ]
    return result


def unigram_baseline(out: str) -> tuple[float, float]:
    """Held-out accuracy and loss (nats) of predicting the training text's unigram counts."""
    tokenizer = Tokenizer.from_file(f"{out}/vocabulary/books.model")
    counts = {
        part: Counter(
            i
            for ids in tokenizer.encode_batch(list(read_lines(f"{out}/text/{part}/sentences.txt")))
            for i in ids
        )
        for part in ("train", "heldout")
    }
    train, held_out = counts["train"], counts["heldout"]
    # Plus one, so that a piece that is new in the held-out text has a probability.
    log_total = math.log(sum(train.values()) + tokenizer.vocab_size)
    loss = sum(n * (log_total - math.log(train[i] + 1)) for i, n in held_out.items())
    best_guess = train.most_common(1)[0][0]
    return held_out[best_guess] / sum(held_out.values()), loss / sum(held_out.values())


def results(out: str) -> dict[str, object]:
    """The figures of a finished demo."""
    log = [json.loads(line) for line in read_lines(f"{out}/pretrained/metrics.jsonl")]
    rates = [entry["tokens_per_second"] for entry in log if "tokens_per_second" in entry]
    accuracy, loss = unigram_baseline(out)
    return {
        "steps": PRETRAINING["num_train_steps"],
        "tokens_per_second": statistics.median(rates),
        "held_out": files.read_json(f"{out}/pretrained/{RESULTS_FILE}"),
        "bundled": files.read_json(f"{out}/bundled/scores/{RESULTS_FILE}"),
        "unigram_accuracy": accuracy,
        "unigram_loss": loss,
        "answers": files.read_json(f"{out}/answers/answers.json")["answers"],
        "accuracies": {
            start: files.read_json(f"{out}/classifier/{start}/{RESULTS_FILE}")["accuracy"]
            for start in STARTS
        },
    }


def table(out: str, found: dict[str, object]) -> str:
    """The figures in at most 80 columns."""
    held_out = found["held_out"]
    labels = [line.split("\t")[1] for line in read_lines(FINE_TUNING["eval_file"])][1:]
    commonest = max(Counter(labels).values()) / len(labels)
    batch, length = PRETRAINING["train_batch_size"], RECORDS["max_seq_length"]
    shallow = "{shallow_layers} layer in the first {num_shallow_steps} steps".format(**PRETRAINING)
    accuracy = {start: f"{value:.1%}" for start, value in found["accuracies"].items()}
    sections = {
        "Pretraining": [
            ("steps", f"{found['steps']:,}", f"of {batch} sequences of {length} pieces"),
            ("tokens per second", f"{found['tokens_per_second']:,.0f}", shallow),
        ],
        "On held-out chapters": [
            (
                "masked LM accuracy",
                f"{held_out['masked_lm_accuracy']:.1%}",
                f"{found['unigram_accuracy']:.1%} for the most frequent piece",
            ),
            (
                "masked LM loss",
                f"{held_out['masked_lm_loss']:.2f}",
                f"{found['unigram_loss']:.2f} for unigram frequencies",
            ),
        ],
        "Which of two parts comes first, 50.0% by chance": [
            (
                "pretrained here",
                f"{held_out['sentence_order_accuracy']:.1%}",
                "a few minutes are too few to learn it",
            ),
            (
                "bundled model *",
                f"{found['bundled']['sentence_order_accuracy']:.1%}",
                "of chapters that it has not read",
            ),
        ],
        f"Which of {len(set(labels))} authors wrote it, {len(labels)} held-out sentences": [
            ("fine-tuned, pretrained", accuracy["pretrained"], ""),
            ("fine-tuned, not pretrained", accuracy["random"], ""),
            ("fine-tuned, bundled model *", accuracy["bundled"], ""),
            ("always the same author", f"{commonest:.1%}", ""),
            (f"* {DEFAULT} comes with albert_tf. It was pretrained on 206 MB", "", ""),
            ("  of books, among them these with their held-out chapters, without authors.", "", ""),
        ],
        "Who wrote this? The exported SavedModel answers": [
            line
            for answer in found["answers"]
            for line in (
                *((part, "", "") for part in textwrap.wrap(answer["text"], 76)),
                (f"→ {answer['label']}", f"{answer['probability']:.1%}", answer["source"]),
            )
        ],
        "Output": [
            ("vocabulary", "", f"{out}/vocabulary"),
            ("records", "", f"{out}/records"),
            ("checkpoints and logs", "", f"{out}/pretrained"),
            ("classifiers", "", f"{out}/classifier"),
            ("SavedModel", "", f"{out}/export/authors"),
            ("these figures", "", f"{out}/results.json"),
            ("what each command printed", "", f"{LOG_FILE} in its folder"),
        ],
    }
    lines = []
    for title, rows in sections.items():
        lines += ["-" * 78, title]
        for name, value, note in rows:
            lines.append(f"  {name:<27}{f'{value:>8}  ' if value else ''}{note}".rstrip())
    return "\n".join([*lines, "-" * 78])


def _main() -> None:
    began = time.monotonic()
    out = flags.FLAGS.output_dir
    config = {**files.read_json(CONFIG), "max_position_embeddings": RECORDS["max_seq_length"]}
    files.write_json(f"{out}/{SHORT_CONFIG}", config)
    run_stages(stages(out))
    found = results(out)
    files.write_json(f"{out}/results.json", found)
    print(f"\n{table(out, found)}\nThe demo took {(time.monotonic() - began) / 60:.1f} minutes.")


if __name__ == "__main__":
    script.run(_main, define_flags)
