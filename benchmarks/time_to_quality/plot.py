# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws the scores of all models over the time of training."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import drawing

#: Panels of the plot: scores, how to label them, and by what to multiply them.
_PANELS = (
    ("word_accuracy", "masked words found (%)", 100),
    ("bits_per_character", "bits per character of masked words", 1),
    ("sst2_accuracy", "SST-2 accuracy (%)", 100),
)


def draw(lines: Sequence[Mapping[str, Any]]) -> Any:
    """Returns a figure: points are models, lines join the medians of each method.

    Args:
      lines: of results.jsonl.
    """
    pyplot = drawing.load_pyplot()
    panels = [panel for panel in _PANELS if any(panel[0] in line for line in lines)]
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4 * len(panels), 4), layout="constrained", squeeze=False
    )
    methods = list(dict.fromkeys(line["method"] for line in lines))
    for axis, (score, label, factor) in zip(axes[0], panels):
        for color, method in enumerate(methods):
            points = sorted(
                (line["minutes"], factor * line[score])
                for line in lines
                if line["method"] == method and score in line
            )
            times = sorted({minutes for minutes, _ in points})
            medians = [statistics.median(v for m, v in points if m == minutes) for minutes in times]
            axis.plot(*zip(*points), f"C{color}o", markersize=3)
            axis.plot(times, medians, f"C{color}-", label=method)
        axis.set_xscale("log")
        ticks = sorted({line["minutes"] for line in lines})
        axis.set_xticks(ticks, [f"{minutes:g}" for minutes in ticks])
        axis.minorticks_off()
        axis.set_xlabel("minutes of training")
        axis.set_ylabel(label)
        axis.grid(True, alpha=0.3)
    axes[0][0].legend()
    return figure
