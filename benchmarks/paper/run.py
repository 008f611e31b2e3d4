# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs one of the paper's experiments, or prints its commands.

At the tiny and small scales everything runs; at the paper's scale the commands are only printed,
unless --run is given. Finished parts are reused, also by other tables; interrupted ones resume.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from benchmarks.paper.recipes import FOLDER, SCALES, TABLES, Recipe, load_recipe
from demo.stages import run_stages

if TYPE_CHECKING:
    from benchmarks.paper.plan import Inputs, Plan

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Flags of `table1` to `table10`."""
    flags.DEFINE_enum(
        "scale", "tiny", SCALES, "tiny takes minutes a model on two cores; small, for sentence "
        "order, takes longer; paper is the paper's."
    )  # fmt: skip
    define_path(
        "text", "books.txt.gz", "Text to pretrain on: a comma list of files and globs; one "
        "sentence per line, a blank line between documents."
    )  # fmt: skip
    define_path("additional_text", "", "More of it, for the rows with additional data.")
    define_path(
        "data_dir", os.environ.get("ALBERT_DATA_DIR"), "Folder with glue/, squad/ and race/ in it. "
        "Default: the environment's ALBERT_DATA_DIR; without it nothing is fine-tuned."
    )  # fmt: skip
    define_path("output_dir", "runs/paper", "Folder for everything, by scale.")
    flags.DEFINE_list("only", [], "Run these rows alone, by their names.")
    flags.DEFINE_list("columns", [], "Run what these columns need alone, such as mlm,sop.")
    flags.DEFINE_list("seeds", [], "Train each model with these seeds. Default: the recipe's.")
    flags.DEFINE_bool("run", None, "Run, not only print. Default: at all scales but the paper's.")
    define_path("recipes", FOLDER, "Folder of the recipes.")


def main(table: str) -> None:
    """Runs or prints the experiment of a table, and writes what there is of its results."""
    from benchmarks.paper.plan import Inputs, Plan

    recipe = load_recipe(table, FLAGS.scale, FLAGS.recipes)
    part = _restricted(recipe)
    if FLAGS.seeds:
        recipe, part = (each.with_seeds(_seeds()) for each in (recipe, part))
    run = FLAGS.scale != "paper" if FLAGS.run is None else FLAGS.run
    output_dir = os.path.join(FLAGS.output_dir, FLAGS.scale)
    data_dir = FLAGS.data_dir or (None if run else "data")
    inputs = Inputs(FLAGS.text, output_dir, data_dir, FLAGS.additional_text, run)
    plan = Plan(part, inputs)
    for path, config in plan.configs.items():
        config.to_json(path)
    if plan.stages and not run:
        _print_commands(plan)
        return
    run_stages(plan.stages)
    report(recipe, inputs)


def report(recipe: Recipe, inputs: Inputs) -> None:
    """Prints the table of what is finished, and writes it as JSON, Markdown and a plot."""
    from benchmarks.paper import tables
    from benchmarks.paper.plan import Plan

    document = tables.collect(Plan(recipe, inputs))
    path = os.path.join(inputs.output_dir, "tables", recipe.name)
    files.write_json(f"{path}.json", document)
    plot = tables.save_plot(document, f"{path}.png")
    files.write_text(f"{path}.md", tables.markdown(document, plot))
    print(f"\n{tables.markdown(document)}\n")
    print(f"The table is in {path}.md and {path}.json{', its plot beside them' if plot else ''}.")


def _seeds() -> list[int]:
    """The numbers of --seeds."""
    if odd := [seed for seed in FLAGS.seeds if not seed.isdecimal()]:
        raise AlbertError(f"--seeds: {odd[0]!r} is not a whole number.")
    return [int(seed) for seed in FLAGS.seeds]


def _restricted(recipe: Recipe) -> Recipe:
    """The rows and columns that --only and --columns name."""
    for flag, wanted, known in (
        ("only", FLAGS.only, [row.name for row in recipe.rows]),
        ("columns", FLAGS.columns, list(recipe.columns)),
    ):
        odd = [name for name in wanted if name not in known]
        if odd:
            raise AlbertError(
                f"--{flag}: {recipe.name} has no {odd[0]!r}, only {', '.join(known)}."
            )
    columns = FLAGS.columns or recipe.columns
    return dataclasses.replace(
        recipe,
        rows=tuple(row for row in recipe.rows if not FLAGS.only or row.name in FLAGS.only),
        columns={name: recipe.columns[name] for name in columns},
    )


def _print_commands(plan: Plan) -> None:
    for stage in plan.stages:
        print(f"# {stage.title}\n{stage.command()}\n")
    print(f"# {len(plan.stages)} commands; --run runs them.", end=" ")
    print(f"The models' configurations are in {plan.inputs.output_dir}/configs.")


COMMANDS = {name: (lambda name=name: main(name), define_flags) for name in TABLES}
