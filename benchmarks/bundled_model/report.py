# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the page of results, and its figures as JSON, from what the other commands measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from absl import flags

from albert_tf import files
from benchmarks import machine
from benchmarks.bundled_model import curve, finetune, heldout

FLAGS = flags.FLAGS
_BEGIN = """\
# The bundled model, measured

What `{model}`, the model that comes with this package, gives. The commands below measured it;
`python -m benchmarks.bundled_model report` wrote this page from [the figures]({json}). How the
model was made is told by its model card, `albert_tf/pretrained/{model}/README.md`.

## On held-out books

{heldout_text}

{heldout_table}

Sentence order is right half of the time by chance.

```text
{heldout_commands}
```
"""
_CURVE = """
## How it learned

{tokens} tokens in {number} runs, each from the weights of the one before it. Blue: the text it
learned from, means of 100 steps. Orange: the first held-out sequences, during training. Dotted:
what it was meant to reach. What was tried:
[pretraining.md](../pretraining.md#short-sequences-first).

![Accuracies over the tokens read]({plot})
"""
_FINETUNE = """
## Fine-tuned

From the pretrained weights, and from random weights of the same model (`--init_checkpoint=none`):
the median of {seeds} seeds, and the lowest and the highest. Both have the same settings; of the
evaluations of a run the best one counts, as for published figures.

{table}

```text
{commands}
```
"""


def define_flags() -> None:
    """Flags of `report`."""
    flags.DEFINE_string("heldout_dir", None, "--output_dir of `heldout`.", required=True)
    flags.DEFINE_string("finetune_dir", None, "--output_dir of `finetune`; default: none was run.")
    flags.DEFINE_list("run_dirs", [], "As of `make`, for the learning curves; default: none.")
    flags.DEFINE_string("page", None, "The Markdown file to write.", required=True)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(results: dict[str, Any], json_name: str, plot: str | None = None) -> str:
    """The page as Markdown.

    Args:
      results: `heldout`, and, if they were measured, `finetune` and `curve`.
      json_name: of the file beside the page.
      plot: likewise, of the curve.
    """
    held_out = results["heldout"]
    text = _BEGIN.format(
        model=held_out["model"],
        json=json_name,
        heldout_text=" ".join(heldout.__doc__.split("\n\n", 1)[1].split()),
        heldout_table=markdown(heldout.table(held_out)),
        heldout_commands="\n".join(held_out["commands"]),
    )
    machines = [held_out["machine"]]
    if plot:
        runs = results["curve"]
        text += _CURVE.format(tokens=f"{runs[-1]['end']:,}", number=len(runs), plot=plot)
    if "finetune" in results:
        found = results["finetune"]
        scores = found["scores"].values()
        numbers = sorted({len(score["random"]["seeds"]) for score in scores})
        text += _FINETUNE.format(
            seeds=" or ".join(map(str, numbers)),
            table=markdown(finetune.table(found["scores"])),
            commands="\n".join(line for lines in found["commands"].values() for line in lines),
        )
        machines.append(found["machine"])
    described = dict.fromkeys(
        f"{entry['processor']}, {machine.cores(entry)}, TensorFlow {entry['tensorflow']}"
        for entry in machines
    )
    return f"{text}\nMachine: {'; '.join(described)}.\n"


def main() -> None:
    """Runs the command."""
    results = {"heldout": files.read_json(f"{FLAGS.heldout_dir}/{heldout.RESULTS_FILE}")}
    if FLAGS.finetune_dir:
        path = f"{FLAGS.finetune_dir}/{finetune.RESULTS_FILE}"
        results["finetune"] = files.read_json(path)
    stem, plot = os.path.splitext(FLAGS.page)[0], None
    if FLAGS.run_dirs:
        results["curve"] = curve.collect(FLAGS.run_dirs)
        plot = curve.save(results["curve"], f"{stem}_curve.png")
    json_file = f"{stem}.json"
    files.write_json(json_file, results)
    files.write_text(FLAGS.page, page(results, os.path.basename(json_file), plot))
    print(f"Written: {FLAGS.page}, {json_file}.")
