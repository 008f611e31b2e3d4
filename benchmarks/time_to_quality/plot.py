# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws the scores of all models over the time of training."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common import load_pyplot

#: Panels of the plot: scores, how to label them, and by what to multiply them.
_PANELS = (
    ("word_accuracy", "masked words found (%)", 100),
    ("bits_per_character", "bits per character of masked words", 1),
    ("sst2_accuracy", "SST-2 accuracy (%)", 100),
    ("downstream", "mean of SST-2, CoLA, STS-B and RTE (%)", 100),
)


def draw(lines: Sequence[Mapping[str, Any]]) -> Any:
    """Returns a figure of a panel for each score, over the minutes used.

    Points are models. A line joins a method's medians, over all of its models of the same planned
    minutes.

    Args:
      lines: of results.jsonl.
    """
    pyplot = load_pyplot()
    from matplotlib import ticker

    panels = [panel for panel in _PANELS if any(panel[0] in line for line in lines)]
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4 * len(panels), 4), layout="constrained", squeeze=False
    )
    methods = list(dict.fromkeys(line["method"] for line in lines))
    for axis, (score, label, factor) in zip(axes[0], panels):
        for color, method in enumerate(methods):
            points = collections.defaultdict(list)
            for line in lines:
                if line["method"] == method and score in line:
                    point = (line["took_minutes"], factor * line[score])
                    points[line["minutes"]].append(point)
            if not points:
                continue
            for models in points.values():
                axis.plot(*zip(*models), f"C{color}o", markersize=3)
            medians = [map(statistics.median, zip(*points[minutes])) for minutes in sorted(points)]
            axis.plot(*zip(*medians), f"C{color}-", label=method)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axis.minorticks_off()
        axis.set_xlabel("minutes of training")
        axis.set_ylabel(label)
        axis.grid(True, alpha=0.3)
    axes[0][0].legend()
    return figure
