# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the page of results, and its figures as JSON, from what the other commands measured."""

from __future__ import annotations

import os
from collections.abc import Sequence

from absl import flags

from albert_tf import files
from benchmarks.bundled_model import finetune, heldout

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
    flags.DEFINE_string("page", None, "The Markdown file to write.", required=True)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(results: dict[str, dict], json_name: str) -> str:
    """The page as Markdown.

    Args:
      results: of `heldout` and, if it was run, of `finetune`.
      json_name: of the file beside the page.
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
        f"{entry['processor']}, {entry['cores']} cores, TensorFlow {entry['tensorflow']}"
        for entry in machines
    )
    return f"{text}\nMachine: {'; '.join(described)}.\n"


def main() -> None:
    """Runs the command."""
    results = {"heldout": files.read_json(f"{FLAGS.heldout_dir}/{heldout.RESULTS_FILE}")}
    if FLAGS.finetune_dir:
        path = f"{FLAGS.finetune_dir}/{finetune.RESULTS_FILE}"
        results["finetune"] = files.read_json(path)
    json_file = f"{os.path.splitext(FLAGS.page)[0]}.json"
    files.write_json(json_file, results)
    files.write_text(FLAGS.page, page(results, os.path.basename(json_file)))
    print(f"Written: {FLAGS.page}, {json_file}.")
