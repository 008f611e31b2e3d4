# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the results page, and its figures as JSON, from the output of the other commands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import flags

from albert_tf import pretrained
from albert_tf.cli.path_flags import define_path
from albert_tf.io import files
from benchmarks import machine
from benchmarks.bundled_model import curve, finetune, heldout, make
from benchmarks.path_lists import define_path_list

FLAGS = flags.FLAGS
_BEGIN = """\
# {title}

Results of `{model}`, which comes with this package, with the commands that measured them.
`python -m benchmarks.bundled_model report` wrote this page from [the figures]({json}). The model
card, `albert_tf/pretrained/{model}/README.md`, describes how the model was made.

## On held-out books

{heldout_text}

{heldout_table}

By chance, half of the sentence orders are right.

```text
{heldout_commands}
```
"""
_CURVE = """
## Learning curve

{tokens} tokens in {runs}. Blue: training
text, means of 100 steps. Orange: the first held-out sequences, during training. Dotted: our goals.
The model read different kinds of examples one after the other (see the model card), so compare
neighboring figures only.
What was tried: [tuning.md](tuning.md#pretraining-small-models).

![Accuracies over the tokens read]({plot})
"""
_FINETUNE = """
## Fine-tuning

From the pretrained weights and from random weights of the same shape (`--init_checkpoint=none`):
the median of {seeds} seeds, with minimum and maximum (–: not measured). Flags are the same for
both. The best evaluation of each run counts, as in published results. `--precision=auto`, the
scripts' default, computed in bfloat16 on machines with units for it and in float32 on others; the
file of figures says which machine each run used.

{table}

```text
{commands}
```
"""


def define_flags() -> None:
    """Flags of `report`."""
    define_path("heldout_dir", None, "--output_dir of `heldout`.", required=True)
    define_path(
        "finetune_dir", None, "--output_dir of `finetune`. What it does not hold stays as "
        "published, if measured on the same model with the same settings."
    )  # fmt: skip
    define_path_list(
        "run_dirs", [], "As of `make`, for the learning curves; default: as published."
    )
    define_path("page", None, "The Markdown file to write.", required=True)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def merged(
    published: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Mapping[str, Any]],
    model: str = pretrained.DEFAULT,
) -> dict[str, dict[str, Any]]:
    """Scores as of `finetune.collect`: what was found, and what was published and not found anew.

    Without those that were measured on other files of the bundled model than it has now, or with
    other settings than the benchmark and the recipe have now.
    """
    now = {start: finetune.hashes(start, model) for start in finetune.STARTS}

    def holding(name: str, scores: Mapping[str, Any]) -> dict[str, Any]:
        settings = finetune.settings(name)
        return {
            k: v
            for k, v in scores.items()
            if k not in now or (v["model_files"] == now[k] and v.get("settings") == settings)
        }

    result = {}
    for name in finetune.BENCHMARKS:
        scores = {**holding(name, published.get(name, {})), **holding(name, found.get(name, {}))}
        if not scores.keys().isdisjoint(now):
            result[name] = scores
    return result


def page(results: dict[str, Any], json_name: str, plot: str | None = None) -> str:
    """The page as Markdown.

    Args:
      results: `heldout`, and, if they were measured, `finetune` and `curve`.
      json_name: of the file beside the page.
      plot: likewise, of the curve.
    """
    held_out = results["heldout"]
    model = held_out["model"]
    text = _BEGIN.format(
        title="The bundled model" if model == pretrained.DEFAULT else f"The model {model}",
        model=model,
        json=json_name,
        heldout_text=" ".join(heldout.__doc__.split("\n\n", 1)[1].split()),
        heldout_table=markdown(heldout.table(held_out)),
        heldout_commands="\n".join(held_out["commands"]),
    )
    machines = [held_out["machine"]]
    if plot:
        runs = results["curve"]
        number = "one run"
        if len(runs) > 1:
            number = f"{len(runs)} runs, each starting from the weights of the previous one"
        text += _CURVE.format(tokens=f"{runs[-1]['end']:,}", runs=number, plot=plot)
    if results.get("finetune"):
        scores = results["finetune"]
        runs = [found[start] for found in scores.values() for start in finetune.STARTS
                if start in found]  # fmt: skip
        numbers = sorted({len(run["seeds"]) for run in runs})
        text += _FINETUNE.format(
            seeds=" or ".join(map(str, numbers)),
            table=markdown(finetune.table(scores)),
            commands="\n".join(run["command"] for run in runs),
        )
        machines += [run["machine"] for run in runs]
    described = dict.fromkeys(
        f"{entry['processor']} ({', '.join(entry['units'])}), {machine.cores(entry)}, "
        f"TensorFlow {entry['tensorflow']}"
        for entry in machines
    )
    return f"{text}\nMachine: {'; '.join(described)}.\n"


def main() -> None:
    """Runs the command."""
    stem, plot = os.path.splitext(FLAGS.page)[0], None
    json_file = f"{stem}.json"
    published = files.read_json(json_file) if tf.io.gfile.exists(json_file) else {}
    found = {}
    if FLAGS.finetune_dir:
        found = files.read_json(f"{FLAGS.finetune_dir}/{finetune.RESULTS_FILE}")
    held_out = files.read_json(f"{FLAGS.heldout_dir}/{heldout.RESULTS_FILE}")
    model = held_out["model"]
    results = {
        "heldout": held_out,
        "finetune": merged(published.get("finetune", {}), found, model),
    }
    curves = published.get("curve", [])
    if FLAGS.run_dirs:
        # Runs that went on from what was bundled before stand after those that made it.
        earlier = make.bundled_runs(model)[: -len(FLAGS.run_dirs)]
        begin = sum(run["tokens"] for run in earlier)
        curves = [run for run in curves if run["end"] <= begin]
        curves += curve.collect(FLAGS.run_dirs, begin)
    if curves:
        results["curve"] = curves
        plot = curve.save(curves, f"{stem}_curve.png")
    files.write_json(json_file, results)
    files.write_text(FLAGS.page, page(results, os.path.basename(json_file), plot))
    print(f"Written: {FLAGS.page}, {json_file}.")
