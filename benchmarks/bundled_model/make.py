# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the files of a bundled model from the run that pretrained it.

Writes a Hugging Face folder with float16 weights, evaluates these files on
the held-out books, and adds a model card and a manifest. It replaces the bundled model of the same
name.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
from typing import Any

from absl import flags

from albert_tf import pretrained
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.export.conversion import FLOAT16, convert
from albert_tf.export.model_card import CARD_FILE, Kind, model_card
from albert_tf.export.model_folder import ModelFolder
from albert_tf.io import files, folders
from albert_tf.io.json_values import parse_json
from albert_tf.io.text_files import read_lines
from albert_tf.version import __version__
from albert_tf.weights.pretrained_model import load_pretrained
from albert_tf.weights.run_folder import BEST, RUN_CONFIG, TRAINING_DATA, BestRecord
from benchmarks import machine
from benchmarks.bundled_model import heldout
from benchmarks.path_lists import define_path_list

FLAGS = flags.FLAGS
_KIND = Kind(
    "Pretrained ALBERT",
    """import albert_tf

model = albert_tf.load_pretrained("{name}")
model(dict(input_word_ids=ids, input_mask=mask, input_type_ids=types))""",
)
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
    define_path_list(
        "run_dirs", None, "Output directory of the run whose best or newest weights are shipped; "
        "before it, those of the runs that it went on from, the first one first. If the first one "
        "went on from what is bundled now, the runs that made that are known.", required=True
    )  # fmt: skip
    define_path(
        "commands_file", None, "The commands that made them, from the text on, as a shell script. "
        "Model card and manifest quote it.", required=True
    )  # fmt: skip
    flags.DEFINE_string("name", pretrained.DEFAULT, "The name it is bundled under.")
    flags.DEFINE_list("trained_on", None, "What each run was made on. Default: this machine.")
    flags.DEFINE_integer(
        "longest", None, "Tokens of the longest sequences that the model read. Default: those of "
        "the last run's records.", 1
    )  # fmt: skip
    define_path("work_dir", "runs/bundled", "Folder for what is made on the way.")


def make(
    run_dirs: list[str],
    commands: str,
    name: str,
    work_dir: str,
    trained_on: list[str] | None = None,
    longest: int | None = None,
) -> dict[str, Any]:
    """Makes albert_tf/pretrained/<name>; see the flags. Returns what manifest.json holds.

    Raises:
      AlbertError: there is no model, a file of a run is missing, an evaluation failed, or
        `trained_on` is not as long as `run_dirs`.
    """
    machines = trained_on or [machine.describe()] * len(run_dirs)
    if len(machines) != len(run_dirs):
        raise AlbertError(f"Give `trained_on` for {len(run_dirs)} runs, not {len(machines)}.")
    folder = os.path.join(work_dir, name)
    shutil.rmtree(folder, ignore_errors=True)
    report = convert(run_dirs[-1], "hf", folder, weights_dtype=FLOAT16)
    weights = os.path.basename(report.checkpoint)
    figures = heldout.evaluate(folder, os.path.join(work_dir, "heldout"))
    described = [
        {**describe_run(path), "machine": where} for path, where in zip(run_dirs, machines)
    ]
    runs = with_earlier_runs(name, described)
    model = load_pretrained(folder)
    made = {
        "albert_tf": __version__,
        "commands": commands.splitlines(),
        "runs": runs,
        "steps": sum(run["steps"] for run in runs),
        "tokens": sum(run["tokens"] for run in runs),
        "weights": f"{weights}, rounded to float16",
    }
    longest = longest or runs[-1]["data"]["options"]["max_seq_length"]
    card = _card(
        name, run_dirs[-1], weights, commands, made, figures, model, trained_on or [], longest
    )
    files.write_text(os.path.join(folder, CARD_FILE), card)
    manifest = {
        "name": name,
        "files": {
            file: {
                "bytes": os.path.getsize(os.path.join(folder, file)),
                "sha256": files.sha256(os.path.join(folder, file)),
            }
            for file in folders.names_below(folder)
        },
        "made": made,
        "heldout": figures["metrics"],
    }
    files.write_json(os.path.join(folder, pretrained.MANIFEST_FILE), manifest)
    target = os.path.join(pretrained.FOLDER, name)
    with folders.new_folder(f"{target}.new") as new:
        folders.copy_folder(folder, new)
    shutil.rmtree(target, ignore_errors=True)
    os.rename(f"{target}.new", target)
    return manifest


def describe_run(path: str) -> dict[str, Any]:
    """What a run's files tell: settings, data, steps, tokens (padding does not count).

    Its steps are those to its best weights, with which others go on, or all if none are the best.

    Raises:
      AlbertError: one of them is missing, or tells nothing of training.
    """
    config = files.read_object(os.path.join(path, RUN_CONFIG), "run configuration")
    data = files.read_object(os.path.join(path, TRAINING_DATA), "description of the data")
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


def with_earlier_runs(name: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs as of `describe_run`; before them those of the bundled model they went on from."""
    if runs[0]["settings"]["init_checkpoint"] != name:
        return runs
    earlier = bundled_runs(name)
    # A model that is made again may be bundled already, perhaps made on another machine.
    first = {**runs[0], "machine": None}
    known = [{**run, "machine": None} for run in earlier]
    return (earlier[: known.index(first)] if first in known else earlier) + runs


def bundled_runs(name: str) -> list[dict[str, Any]]:
    """The runs that made a bundled model, the first one first: those of `describe_run`, and
    `machine`, the one it was made on.

    Raises:
      AlbertError: there is none of that name.
    """
    path = os.path.join(pretrained.FOLDER, name, pretrained.MANIFEST_FILE)
    return files.read_object(path, "manifest")["made"]["runs"]


def _card(
    name: str,
    run_dir: str,
    weights: str,
    commands: str,
    made: dict[str, Any],
    figures: dict[str, Any],
    model: Any,
    trained_on: list[str],
    longest: int,
) -> str:
    """The model card, of what the run's files tell and of what was measured."""
    facts = ModelFolder(run_dir).facts(name, model.tokenizer, model)
    where = f" Trained on {', '.join(dict.fromkeys(trained_on))}." if trained_on else ""
    later = _LATER if longest < model.config.max_position_embeddings else ""
    facts = dataclasses.replace(
        facts,
        origin=f"{made['steps']:,} steps in all, {made['tokens']:,} tokens.{where} The weights "
        f"are those of `{weights}`, each weight rounded to the nearest float16. The commands:\n\n"
        f"```sh\n{commands.strip()}\n```",
        evaluation=figures["metrics"],
        use=_USE.format(length=longest, later=later),
    )
    check = (
        "The folder was read back and compared with the rounded weights, and the figures above "
        f"were measured on {heldout.TEXT}, with `python -m benchmarks.bundled_model heldout`."
    )
    return model_card(_KIND, {}, facts, check)


def main() -> None:
    """Runs the command."""
    commands = files.read_text(FLAGS.commands_file, "script")
    manifest = make(
        FLAGS.run_dirs, commands, FLAGS.name, FLAGS.work_dir, FLAGS.trained_on, FLAGS.longest
    )
    size = sum(file["bytes"] for file in manifest["files"].values())
    print(f"{FLAGS.name} is in {pretrained.FOLDER}: {size / 1e6:.1f} MB, by its manifest:")
    for what, metrics in manifest["heldout"].items():
        print(f"  {what}: " + ", ".join(f"{key} {value:.4g}" for key, value in metrics.items()))
