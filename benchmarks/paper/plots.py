# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plots: learning curves, throughput, lengths of masked spans, Figures 1 and 2 of the paper."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from benchmarks import drawing
from benchmarks.paper import named_paths

FLAGS = flags.FLAGS
#: Inches; at 100 dots an inch 800 pixels wide.
_WIDTH = 8

Entries = Sequence[Mapping[str, Any]]


def define_flags() -> None:
    """Flags of `plots`."""
    named_paths.define_flag(
        "runs", "Output directories of pretraining runs, for learning_curves.png, throughput.png "
        "and figure2.png"
    )  # fmt: skip
    named_paths.define_flag(
        "records", "Folders of pretraining records that hold masks, for ngrams.png"
    )
    define_path("figure1", None, "What the command figure1 wrote, for figure1.png.")
    define_path("output_dir", None, "Folder for the plots.", required=True)


def curve(entries: Entries, split: str, metric: str) -> tuple[list[int], list[float]]:
    """Steps and values of a metric of metrics.jsonl, without entries that have no finite value.

    Args:
      entries: as `albert_tf.training.monitors.read_metrics` gives them.
      split: "train" or "eval".
      metric: its name there.
    """
    points = [
        (entry["step"], entry[metric])
        for entry in entries
        if entry.get("split") == split and entry.get(metric) is not None
    ]
    return [step for step, _ in points], [value for _, value in points]


def span_shares(folder: str) -> tuple[list[float], list[float]]:
    """Shares of masked spans of 1, 2, … words in records, and what they were drawn with.

    The second is p(n) = (1/n) / Σ 1/k of the paper, section 4.1, in reverse if the records were
    built without --favor_shorter_ngram.

    Raises:
      AlbertError: there is no manifest, or its records are not pretraining records with masks.
    """
    import numpy as np

    from albert_tf.data.manifest import Manifest
    from albert_tf.data.masking_options import MaskingOptions

    manifest = Manifest.load(folder)
    shares, options = manifest.statistics.get("span_words"), manifest.options
    if not shares:
        raise AlbertError(
            f"The manifest of {folder} tells nothing of masked spans: that is known only of "
            "pretraining records built with --record_format=masked."
        )
    masking = MaskingOptions(
        options["max_predictions_per_seq"],
        ngram=options["ngram"],
        favor_shorter_ngram=options["favor_shorter_ngram"],
    )
    drawn = np.diff(masking.span_thresholds(), prepend=0.0)
    return [shares[str(n)] for n in range(1, masking.ngram + 1)], drawn.tolist()


def _panels(title: str, labels: Sequence[str], height: float, side_by_side: bool = False) -> Any:
    """A figure with one panel for each label of a y axis, and its panels."""
    pyplot = drawing.load_pyplot()
    rows, columns = (1, len(labels)) if side_by_side else (len(labels), 1)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(_WIDTH, height), squeeze=False, sharex=True, layout="constrained"
    )
    figure.suptitle(title)
    for panel, label in zip(axes.flat, labels):
        panel.set_ylabel(label)
        panel.grid(True, alpha=0.3)
    return figure, list(axes.flat)


def _draw_runs(panel: Any, runs: Mapping[str, Entries], metric: str, scale: float = 1.0) -> None:
    """A metric of all runs: training as lines, held-out text as dashed lines with points."""
    for number, (name, entries) in enumerate(runs.items()):
        for split, style, what in (("train", "-", "training"), ("eval", "o--", "held-out")):
            steps, values = curve(entries, split, metric)
            if steps:
                panel.plot(
                    steps, [scale * value for value in values], style, color=f"C{number}",
                    markersize=4, linewidth=1.2, label=f"{name}, {what}"
                )  # fmt: skip


def draw_learning_curves(runs: Mapping[str, Entries]) -> Any:
    """Loss and both accuracies over the steps."""
    labels = ("loss (nats)", "masked LM accuracy (%)", "sentence order accuracy (%)")
    figure, panels = _panels("Learning curves", labels, 9)
    metrics = (("loss", 1), ("masked_lm_accuracy", 100), ("sentence_order_accuracy", 100))
    for panel, (metric, scale) in zip(panels, metrics):
        _draw_runs(panel, runs, metric, scale)
    panels[2].axhline(50, color="grey", linestyle=":", label="chance")
    panels[0].legend(fontsize=8)
    panels[2].legend(*_last(panels[2]), fontsize=8)
    panels[2].set_xlabel("step")
    return figure


def _last(panel: Any) -> tuple[list, list]:
    handles, labels = panel.get_legend_handles_labels()
    return handles[-1:], labels[-1:]


def draw_figure2(runs: Mapping[str, Entries]) -> Any:
    """Masked LM accuracy over the steps, as the paper's Figure 2 has it of two runs."""
    figure, (panel,) = _panels("Masked LM accuracy (paper, Figure 2)", ["accuracy (%)"], 5)
    _draw_runs(panel, runs, "masked_lm_accuracy", 100)
    panel.set_xlabel("step")
    panel.legend()
    return figure


def draw_evaluations(document: Mapping[str, Any]) -> Any:
    """Held-out accuracies of a table's models over the steps.

    Args:
      document: as `tables.collect` gives it.
    """
    labels = ("masked LM accuracy (%)", "sentence order accuracy (%)")
    figure, panels = _panels(f"{document['title']}: held-out text", labels, 4.5, side_by_side=True)
    for panel, metric in zip(panels, ("masked_lm_accuracy", "sentence_order_accuracy")):
        # JSON has sorted them by name.
        for name in (row["name"] for row in document["rows"] if row["name"] in document["curves"]):
            entries = [entry for entry in document["curves"][name] if metric in entry]
            steps = [entry["step"] for entry in entries]
            shares = [100 * entry[metric] for entry in entries]
            panel.plot(steps, shares, "o-", markersize=4, linewidth=1.2, label=name)
        panel.set_xlabel("step")
    panels[1].axhline(50, color="grey", linestyle=":")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def save_evaluations(document: Mapping[str, Any], path: str) -> str | None:
    """Draws `draw_evaluations` where there is something to draw, and something to draw with.

    Returns:
      The name of the file, for a page beside it; None if there is none.
    """
    if not document["curves"]:
        return None
    try:
        figure = draw_evaluations(document)
    except AlbertError as error:
        print(f"No plot of {document['table']}: {error}")
        return None
    drawing.save(figure, path)
    return os.path.basename(path)


def draw_throughput(runs: Mapping[str, Entries]) -> Any:
    """Tokens a second over the steps."""
    figure, (panel,) = _panels("Training throughput", ["tokens per second"], 4)
    for number, (name, entries) in enumerate(runs.items()):
        panel.plot(*curve(entries, "train", "tokens_per_second"), color=f"C{number}", label=name)
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter("{x:,.0f}")
    panel.set_xlabel("step")
    panel.legend()
    return figure


def draw_ngrams(records: Mapping[str, tuple[list[float], list[float]]]) -> Any:
    """How long masked spans are, beside the distribution they were drawn with."""
    figure, (panel,) = _panels("Length of masked spans", ["share of spans (%)"], 4.5)
    width = 0.8 / len(records)
    for number, (name, (shares, drawn)) in enumerate(records.items()):
        places = [n + (number + 0.5) * width - 0.4 for n in range(1, len(shares) + 1)]
        bars = panel.bar(
            places, [100 * share for share in shares], 0.9 * width, label=name, alpha=0.8
        )
        panel.bar_label(bars, fmt="%.1f", padding=-14, color="white")
        heights = [100 * share for share in drawn]
        ends = [[place + side * width / 2 for place in places] for side in (-1, 1)]
        label = None if number else "p(n) they are drawn with"
        panel.hlines(heights, *ends, colors="black", linestyles="--", label=label)
    panel.set_xticks(range(1, 1 + max(len(shares) for shares, _ in records.values())))
    panel.set_xlabel("words in the span")
    panel.grid(False, axis="x")
    panel.legend()
    return figure


def draw_figure1(result: Mapping[str, Any]) -> Any:
    """L2 distance and angle between each layer's input and output."""
    title = "Input against output of each layer (paper, Figure 1)"
    labels = ("L2 distance", "angle (degrees)")
    figure, panels = _panels(title, labels, 4, side_by_side=True)
    figure.get_layout_engine().set(wspace=0.05)
    for panel, metric in zip(panels, ("l2_distance", "angle")):
        for model in result["models"]:
            numbers = [layer["layer"] for layer in model["layers"]]
            values = [layer[metric] for layer in model["layers"]]
            panel.plot(numbers, values, "o-", markersize=4, label=model["name"])
        panel.set_ylim(bottom=0)
        panel.set_xlabel("layer")
        panel.xaxis.get_major_locator().set_params(integer=True)
    panels[0].legend()
    return figure


def main() -> None:
    """Runs the command."""
    drawing.load_pyplot()
    from albert_tf.training.monitors import read_metrics

    drawn = {}
    if FLAGS.runs:
        runs = {name: read_metrics(path) for name, path in named_paths.parse(FLAGS.runs).items()}
        drawn["learning_curves"] = draw_learning_curves(runs)
        drawn["figure2"] = draw_figure2(runs)
        drawn["throughput"] = draw_throughput(runs)
    if FLAGS.records:
        paths = named_paths.parse(FLAGS.records)
        drawn["ngrams"] = draw_ngrams({name: span_shares(path) for name, path in paths.items()})
    if FLAGS.figure1:
        result = files.read_object(FLAGS.figure1, "result of figure1")
        if result.get("experiment") != "figure1":
            raise AlbertError(f"{FLAGS.figure1} was not written by the command figure1.")
        drawn["figure1"] = draw_figure1(result)
    if not drawn:
        raise AlbertError("There is nothing to draw: give --runs, --records or --figure1.")
    for name, figure in drawn.items():
        path = os.path.join(FLAGS.output_dir, f"{name}.png")
        drawing.save(figure, path)
        print(f"Written to {path}.")
