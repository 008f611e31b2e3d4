# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The learning curve of the bundled model: its runs in order, over the tokens they read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.training.monitors import read_metrics
from benchmarks import drawing
from benchmarks.bundled_model import make
from benchmarks.paper.plots import curve

#: Panels of the plot: metrics, their names there, what they were to reach (percent).
_PANELS = (
    ("masked_lm_accuracy", "masked LM accuracy (%)", 42),
    ("sentence_order_accuracy", "sentence order accuracy (%)", 70),
)
_SPLITS = ("train", "eval")


def collect(run_dirs: Sequence[str], begin: int = 0) -> list[dict[str, Any]]:
    """Accuracies of runs that went on from one another.

    Args:
      run_dirs: their output directories.
      begin: tokens read before the first of them.

    Returns:
      For each run its max_seq_length, `begin` and `end` (tokens read before and after it), and by
      split and metric the points: lists of tokens and of accuracies.

    Raises:
      AlbertError: a file of a run is missing.
    """
    runs = []
    for path in run_dirs:
        run = make.describe_run(path)
        # What came after its best weights was left behind.
        entries = [entry for entry in read_metrics(path) if entry["step"] <= run["steps"]]
        a_step = run["tokens"] / run["steps"]
        points: dict[str, dict[str, list[list[float]]]] = {split: {} for split in _SPLITS}
        for split in _SPLITS:
            for metric, _, _ in _PANELS:
                steps, values = curve(entries, split, metric)
                points[split][metric] = [[round(begin + step * a_step) for step in steps], values]
        end = begin + run["tokens"]
        runs.append(
            {
                "max_seq_length": run["data"]["options"]["max_seq_length"],
                "begin": begin,
                "end": end,
                **points,
            }
        )
        begin = end
    return runs


def draw(runs: Sequence[Mapping[str, Any]]) -> Any:
    """A figure of what `collect` gives."""
    pyplot = drawing.load_pyplot()
    figure, panels = pyplot.subplots(1, len(_PANELS), figsize=(8, 4), layout="constrained")
    for panel, (metric, label, aim) in zip(panels, _PANELS):
        for run in runs:
            for split, style in zip(_SPLITS, ("C0-", "C1o-")):
                tokens, shares = run[split][metric]
                millions = [number / 1e6 for number in tokens]
                panel.plot(
                    millions, [100 * share for share in shares], style, markersize=3, linewidth=0.8
                )
            panel.axvline(run["begin"] / 1e6, color="grey", linewidth=0.8)
            panel.text(
                run["begin"] / 1e6, 1.01, f" {run['max_seq_length']}", fontsize=8,
                transform=panel.get_xaxis_transform()
            )  # fmt: skip
        panel.axhline(aim, color="grey", linestyle=":")
        panel.set_xlabel("million tokens read (above: sequence length)")
        panel.set_ylabel(label)
        panel.set_xlim(left=0)
        panel.grid(True, alpha=0.3)
    panels[0].set_ylim(bottom=0)
    panels[1].set_ylim(45, 75)
    lines = panels[0].get_lines()[:2]
    panels[0].legend(lines, ["training", "held-out"], loc="lower right")
    return figure


def save(runs: Sequence[Mapping[str, Any]], path: str) -> str:
    """Draws into a PNG file; returns its name."""
    drawing.save(draw(runs), path)
    return os.path.basename(path)
