# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of measured results next to the published ones: as values, Markdown or text."""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.training.monitors import read_metrics
from albert_tf.weights.run_folder import METRICS_FILE, RunFolder
from benchmarks import common
from benchmarks.paper.plan import Plan, Source
from benchmarks.paper.recipes import Row
from benchmarks.paper.speed import SPEED_FILE
from demo.stages import RECORD_FILE, is_finished

_SEEDS_FILE = "seeds.json"
_NONE = "–"


def collect(plan: Plan) -> dict[str, Any]:
    """What the finished stages of a plan have found, ready for JSON.

    Returns:
      `rows`, each with `ours` and `published` by column (numbers, lists of them, or text; shares in
      percent) and with the `config` and the folder of its model; `curves`, the held-out evaluations
      while training; and what all of it depends on.
    """
    recipe = plan.recipe
    rows = [_row(plan, row) for row in recipe.rows]
    if recipe.speed_of:
        _relate_speeds(rows, recipe.speed_of)
    if "avg" in recipe.columns:
        for row in rows:
            _average(row["ours"], recipe.columns)
    curves = {row.name: _curve(plan.models.get(row.name)) for row in recipe.rows}
    return {
        "table": recipe.name,
        "title": recipe.title,
        "section": recipe.section,
        "columns": [{"name": name, "title": c["title"]} for name, c in recipe.columns.items()],
        "rows": rows,
        "curves": {name: curve for name, curve in curves.items() if curve},
        "notes": list(recipe.notes),
        "missing": plan.missing,
        "text": ",".join(os.path.basename(path) for path in plan.inputs.text.split(",")),
        "commands": [shlex.join(["python", *stage.arguments()]) for stage in plan.stages],
        "machine": common.describe_machine(),
    }


def _row(plan: Plan, row: Row) -> dict[str, Any]:
    found = {"name": row.name, "published": dict(row.published), "ours": {}}
    for name, cell in plan.cells.get(row.name, {}).items():
        value = _value(name, cell, plan.recipe.columns[name])
        if value is not None:
            found["ours"][name] = value
    if row.config is None:
        return found
    return {**found, "config": row.config.to_dict(), "model": plan.models.get(row.name)}


def _value(name: str, cell: Any, column: Mapping[str, Any]) -> Any:
    """A cell's number, list of numbers or text; None if its stage has not finished."""
    if not isinstance(cell, Source):
        return cell
    if not is_finished(cell.folder):
        return None
    found = files.read_json(os.path.join(cell.folder, cell.file))
    if cell.file in (SPEED_FILE, RECORD_FILE):
        value = found[cell.metrics[0]]
        return value / 3600 if name == "hours" else value
    factor = 1 if column.get("percent") else 100
    values = [factor * found[metric] for metric in cell.metrics]
    seeds = os.path.join(cell.folder, _SEEDS_FILE)
    if len(values) == 1 and tf.io.gfile.exists(seeds):
        # Section 4.2.2: the median of several runs.
        found = files.read_json(seeds)["values"].values()
        values = [factor * statistics.median(value for value in found if value is not None)]
    return values if len(values) > 1 else values[0]


def _curve(model: str | None) -> list[dict[str, float]]:
    """The held-out evaluations of a training run, in order."""
    if not model or not tf.io.gfile.exists(os.path.join(model, METRICS_FILE)):
        return []
    entries = [entry for entry in read_metrics(RunFolder(model)) if entry["split"] != "train"]
    return [{k: v for k, v in entry.items() if k != "split"} for entry in entries]


def _relate_speeds(rows: Sequence[dict[str, Any]], name: str) -> None:
    """Makes of seconds a step how many times faster it is than that of a row."""
    seconds = {row["name"]: row["ours"].pop("speedup", None) for row in rows}
    for row in rows:
        own, reference = seconds[row["name"]], seconds[name]
        if own is not None and reference is not None:
            row["ours"]["speedup"] = reference / own


def _average(values: dict[str, Any], columns: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds the mean of the tasks if all are there; F1 and EM of SQuAD are averaged first."""
    tasks = [name for name, column in columns.items() if "task" in column]
    if tasks and all(name in values for name in tasks):
        means = [statistics.mean(v) if isinstance(v := values[n], list) else v for n in tasks]
        values["avg"] = statistics.mean(means)


def shown(name: str, value: Any) -> str:
    """A value as the paper shows it."""
    if value is None:
        return _NONE
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [f"{v:.1f}" for v in value]
        return "/".join(texts) if len(texts) == 2 else f"{texts[0]} ({texts[1]}/{texts[2]})"
    if name == "parameters":
        millions = value / 1e6 if value > 1000 else value  # Published in millions.
        return f"{millions:.0f}M" if millions >= 10 else f"{millions:.2f}M"
    if name == "speedup":
        return f"{value:.1f}x"
    if name == "hours":
        return f"{value:.0f}h" if value >= 1 else f"{value:.2f}h"
    if isinstance(value, int):
        return f"{value}" if value < 100_000 else f"{value // 1000}k"
    return f"{value:.1f}"


def lines(document: Mapping[str, Any]) -> list[list[str]]:
    """The cells' texts: the titles, then two lines a row, ours and the paper's."""
    columns = document["columns"]
    table = [["", "", *(column["title"] for column in columns)]]
    for row in document["rows"]:
        pairs = (("ours", row["ours"]), ("paper", row["published"]))
        for who, values in pairs if row["published"] else pairs[:1]:
            if who == "ours" and "config" not in row:
                continue
            if not (values or row["published"]):  # A further seed that was not run.
                continue
            name = "" if who == "paper" and "config" in row else row["name"]
            cells = [shown(column["name"], values.get(column["name"])) for column in columns]
            table.append([name, who, *cells])
    return table


def markdown(document: Mapping[str, Any], plot: str | None = None) -> str:
    """The table with its notes and, if the file of one is given, a plot."""
    text = [f"## {document['title']}", "", f"Section {document['section']} of the paper.", ""]
    text += [common.markdown(lines(document)), ""]
    text += [*(f"- {note}" for note in notes(document)), ""]
    if plot:
        text += [f"![Accuracies on held-out text over the steps]({plot})", ""]
        text += ["Each model is evaluated on held-out records of the kind it was trained on.", ""]
    return "\n".join(text)


def save_plot(document: Mapping[str, Any], path: str) -> str | None:
    """Draws held-out accuracies of a table's models over the steps, if there are any.

    Returns:
      The name of the file, for a page beside it; None if there is none, or no matplotlib.
    """
    if not document["curves"]:
        return None
    try:
        pyplot = common.load_pyplot()
    except AlbertError as error:
        print(f"No plot of {document['table']}: {error}")
        return None
    figure, panels = pyplot.subplots(1, 2, figsize=(8, 4.5), layout="constrained")
    figure.suptitle(f"{document['title']}: held-out text")
    for panel, metric in zip(panels, ("masked_lm_accuracy", "sentence_order_accuracy")):
        # JSON has sorted them by name.
        for name in (row["name"] for row in document["rows"] if row["name"] in document["curves"]):
            entries = [entry for entry in document["curves"][name] if metric in entry]
            steps = [entry["step"] for entry in entries]
            shares = [100 * entry[metric] for entry in entries]
            panel.plot(steps, shares, "o-", markersize=4, linewidth=1.2, label=name)
        panel.set(xlabel="step", ylabel=f"{metric.replace('_', ' ')} (%)")
        panel.grid(True, alpha=0.3)
    panels[1].axhline(50, color="grey", linestyle=":")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    common.save_figure(figure, path)
    return os.path.basename(path)


def notes(document: Mapping[str, Any]) -> list[str]:
    """What to know when reading the table."""
    by_reason: dict[str, list[str]] = {}
    for title, reason in document["missing"].items():
        by_reason.setdefault(reason, []).append(title)
    found = {"avg", *(name for row in document["rows"] for name in row["ours"])}
    empty = [c["title"] for c in document["columns"] if c["name"] not in found]
    if left_out := [title for title in empty if title not in document["missing"]]:
        by_reason["not run"] = left_out
    return [*document["notes"], *(f"{', '.join(t)}: {reason}." for reason, t in by_reason.items())]
