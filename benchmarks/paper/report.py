# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Joins the tables of finished runs to one page, with plots beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from absl import flags

from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from benchmarks import machine
from benchmarks.paper.recipes import SCALES, TABLES, load_recipe

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Flags of `report`."""
    define_path("output_dir", "runs/paper", "Where the tables were run.")
    flags.DEFINE_enum("scale", "tiny", SCALES, "Which of them.")
    define_path("page", "docs/results/paper.md", "The Markdown file to write.")


def page(documents: list[dict[str, Any]], scale: str, plots: Mapping[str, str | None]) -> str:
    """The page of some tables, as `tables.collect` gives them, of one scale.

    Args:
      documents: the tables.
      scale: of all of them.
      plots: files beside the page, by table.
    """
    from benchmarks.paper import tables

    own = load_recipe(documents[0]["table"], scale).scale
    steps, length = own["row"]["pretraining"], own["records"]["max_seq_length"]
    machines = dict.fromkeys(_machine(d["machine"]) for d in documents)
    commands = [
        f"python -m benchmarks.paper {d['table']} --scale={scale} --text={d['text']} "
        "--data_dir=data --output_dir=runs/paper"
        + f" --columns={','.join(tables.columns_found(d))}"
        * bool(tables.columns_left_out(d))
        for d in documents
    ]
    text = [
        f"# The paper's tables at the {scale} scale",
        "",
        "What these runs are, and how they differ from the paper's, is in "
        "[reproduction.md](../reproduction.md). This page is written by "
        f"`python -m benchmarks.paper report --scale={scale}`.",
        "",
        "```bash",
        *commands,
        "```",
        "",
        f"Every model: {steps['num_train_steps']} steps of {steps['train_batch_size']} sequences "
        f"of {length} pieces, unless its table says otherwise; {own['vocabulary']['vocab_size']:,} "
        f"pieces; seed {steps.get('random_seed', 'default')}, one run each.",
        "",
        *(f"- {note}" for note in own.get("notes", ())),
        *(f"- Machine: {line}." for line in machines),
        "",
    ]
    return (
        "\n".join(text)
        + "\n"
        + "\n".join(tables.markdown(d, plots.get(d["table"])) for d in documents)
    )


def _machine(found: dict[str, Any]) -> str:
    """What `machine.describe` gives, as words."""
    units = f" ({', '.join(found['units'])})" if found.get("units") else ""
    return (
        f"{found['processor']}{units}, {machine.cores(found)}, {found['memory_gib']} GiB, shared "
        f"with other programs; Python {found['python']}, TensorFlow {found['tensorflow']}"
    )


def main() -> None:
    """Writes the page and its plots."""
    import tensorflow as tf

    from benchmarks.paper.plots import save_evaluations

    folder = os.path.join(FLAGS.output_dir, FLAGS.scale, "tables")
    paths = [os.path.join(folder, f"{name}.json") for name in TABLES]
    documents = [files.read_object(path, "table") for path in paths if tf.io.gfile.exists(path)]
    if not documents:
        raise AlbertError(f"There are no tables in {folder}; run some, such as table5.")
    stem = os.path.splitext(FLAGS.page)[0]
    plots = {d["table"]: save_evaluations(d, f"{stem}_{d['table']}.png") for d in documents}
    files.write_text(FLAGS.page, page(documents, FLAGS.scale, plots))
    print(f"{len(documents)} tables are in {FLAGS.page}.")
