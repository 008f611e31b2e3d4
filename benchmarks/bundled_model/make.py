# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the files of a bundled model from the run that pretrained it.

Writes a Hugging Face folder with float16 weights, evaluates these files on
the held-out books, and adds a model card and a manifest. It replaces the bundled model of the same
name.
"""

from __future__ import annotations

import os
import shutil
import statistics
from typing import Any

import numpy as np
from absl import flags

from albert_tf import __version__, pretrained
from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.export.model_folder import ModelFolder
from albert_tf.export.saved_model import CARD_FILE, model_card
from albert_tf.huggingface.weights import write_hugging_face
from albert_tf.io import files, folders, removal
from albert_tf.io.json_values import parse_json
from albert_tf.io.text_files import read_lines
from albert_tf.weights.pretrained_model import load_pretrained
from albert_tf.weights.run_folder import BEST, RUN_CONFIG, BestRecord
from benchmarks.bundled_model import heldout

FLAGS = flags.FLAGS
_EXAMPLE = """import albert_tf

model = albert_tf.load_pretrained("{name}")
model(dict(input_word_ids=ids, input_mask=mask, input_type_ids=types))"""
_LATER = "The embeddings of later positions are copies of earlier ones and were not trained.\n"
_USE = """\
A small English model to start from: to try this package out, to teach, and to fine-tune where a
model must be small. It is no substitute for the released models, which have read far more.

It was trained on books, most of them from before 1930, in sequences of at most {length} tokens.
{later}It has learned the language and the views of these books, prejudices about women, peoples and
classes included: do not use it to judge people. The weights come under the licence of the package
(Apache 2.0).

## Text

62 MB of public-domain books and 149 MB of newer prose (60 and 146 MB without the held-out
documents):

- 166 Standard Ebooks titles (CC0 1.0);
- the prose of the CIA's World Factbook (public domain);
- 24 OpenStax textbooks (openstax.org, CC BY 4.0): American Government 3e, Anatomy and Physiology
  2e, Astronomy 2e, Business Ethics, Chemistry 2e, College Physics 2e, College Success,
  Entrepreneurship, Introduction to Anthropology, Introduction to Business 2e, Introduction to
  Intellectual Property, Introduction to Philosophy, Introduction to Political Science, Introduction
  to Sociology 3e, Life, Liberty, and the Pursuit of Happiness, Microbiology, Physics, Principles of
  Economics 3e, Principles of Finance, Psychology 2e, Statistics, U.S. History, World History 1 and
  2, Writing Guide with Handbook;
- The Architecture of Open Source Applications and 500 Lines or Less (A. Brown, G. Wilson et al.,
  CC BY 3.0); Open Source Guides (GitHub and contributors, CC BY 4.0).

Markup was removed and the text was split into sentences. Every 40th document was held out."""


def define_flags() -> None:
    """Flags of `make`."""
    define_path(
        "run_dirs", None, "Output directory of the run whose best or newest weights are shipped; "
        "before it, those of the runs that it went on from, the first one first.", required=True
    )  # fmt: skip
    define_path(
        "commands_file", None, "The commands that made them, from the text on, as a shell script. "
        "Model card and manifest quote it.", required=True
    )  # fmt: skip
    flags.DEFINE_string("name", pretrained.DEFAULT, "The name it is bundled under.")
    flags.DEFINE_string("trained_on", "two CPU cores", "What the runs were made on, in words.")
    define_path("work_dir", "runs/bundled", "Folder for what is made on the way.")


def make(
    run_dirs: list[str], commands: str, name: str, work_dir: str, trained_on: str
) -> dict[str, Any]:
    """Makes albert_tf/pretrained/<name>; see the flags. Returns what manifest.json holds.

    Raises:
      AlbertError: there is no model, a file of a run is missing, or an evaluation failed.
    """
    folder = os.path.join(work_dir, name)
    if os.path.exists(folder):
        removal.set_aside(folder, "former")
    model = load_pretrained(run_dirs[-1])
    weights = os.path.basename(model.load_report.checkpoint)
    halves = {n: w.numpy().astype(np.float16) for n, w in model.named_weights().items()}
    if large := [name for name, half in halves.items() if not np.isfinite(half).all()]:
        raise AlbertError(f"{large[0]} has values that are too large for float16.")
    with folders.new_folder(folder) as new:
        write_hugging_face(new, model.config, model.tokenizer, halves)
    figures = heldout.evaluate(folder, os.path.join(work_dir, "heldout"))
    runs = [describe_run(path) for path in run_dirs]
    made = {
        "albert_tf": __version__,
        "commands": commands.splitlines(),
        "runs": runs,
        "steps": sum(run["steps"] for run in runs),
        "tokens": sum(run["tokens"] for run in runs),
        "trained_on": trained_on,
        "weights": f"{weights}, rounded to float16",
    }
    model = load_pretrained(folder)
    longest = max(run["data"]["options"]["max_seq_length"] for run in runs)
    later = _LATER if longest < model.config.max_position_embeddings else ""
    sections = {
        **ModelFolder(run_dirs[-1]).sections(model.tokenizer, model),
        "Training": f"{made['steps']:,} steps in all, {made['tokens']:,} tokens. Trained on "
        f"{trained_on}. The weights are those of `{weights}`, each weight rounded to the nearest "
        f"float16. The commands:\n\n```sh\n{commands.strip()}\n```",
        "Evaluation": figures["metrics"],
        "Check": "The folder was read back, and the figures above were measured on "
        f"{heldout.TEXT}, with `python -m benchmarks.bundled_model heldout`.",
        "Use": _USE.format(length=longest, later=later),
    }
    card = model_card("Pretrained ALBERT", name, _EXAMPLE, sections)
    files.write_text(os.path.join(folder, CARD_FILE), card)
    paths = {file: os.path.join(folder, file) for file in folders.names_below(folder)}
    manifest = {
        "name": name,
        "files": {
            file: {"bytes": os.path.getsize(path), "sha256": files.sha256(path)}
            for file, path in paths.items()
        },
        "made": made,
        "heldout": figures["metrics"],
    }
    files.write_json(os.path.join(folder, pretrained.MANIFEST_FILE), manifest)
    target = os.path.join(pretrained.FOLDER, name)
    with folders.new_folder(f"{target}.new") as new:
        folders.copy_folder(folder, new)
    if os.path.exists(target):  # Not beside it, where each folder counts as a bundled model.
        bundled = f"{folder}.bundled"
        if os.path.exists(bundled):
            removal.set_aside(bundled, "former")
        shutil.move(target, bundled)
    os.rename(f"{target}.new", target)
    return manifest


def describe_run(path: str) -> dict[str, Any]:
    """What a run's files tell: settings, data, steps, tokens (padding does not count).

    Its steps are those to its best weights, with which others go on, or all if none are the best.

    Raises:
      AlbertError: one of them is missing, or tells nothing of training.
    """
    config = files.read_object(os.path.join(path, RUN_CONFIG), "run configuration")
    data = config.get("data")
    if not isinstance(data, dict):
        raise AlbertError(f"{path} says nothing of the data of its run.")
    log_file = os.path.join(path, "metrics.jsonl")
    log = [parse_json(line, log_file) for line in read_lines(log_file)]
    padding = [entry["padding_share"] for entry in log if "padding_share" in entry]
    if not padding:
        raise AlbertError(f"{log_file} tells nothing of any training step.")
    settings = config["run"]
    initial = settings.get("init_checkpoint")
    best = BestRecord.load(os.path.join(path, BEST))
    positions = settings["train_batch_size"] * data["options"]["max_seq_length"]
    steps = best.step if best else max(entry["step"] for entry in log)
    return {
        "settings": {**settings, "init_checkpoint": initial and os.path.basename(initial)},
        "data": data,
        "model": config["task"]["config"],
        "steps": steps,
        "tokens": round(steps * positions * (1 - statistics.mean(padding))),
    }


def main() -> None:
    """Runs the command."""
    commands = files.read_text(FLAGS.commands_file, "script")
    run_dirs = FLAGS.run_dirs.split(",")
    manifest = make(run_dirs, commands, FLAGS.name, FLAGS.work_dir, FLAGS.trained_on)
    size = sum(file["bytes"] for file in manifest["files"].values())
    print(f"{FLAGS.name} is in {pretrained.FOLDER}: {size / 1e6:.1f} MB.")
