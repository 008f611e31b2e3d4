# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the training cost of a token as models grow, and what weight sharing saves.

  python -m benchmarks.scaling --seq_lengths=128,512 --tokens=512 --plot=scaling.png

Every step is a real one, including LAMB, with the same number of tokens. Costs are given in wall
time and in CPU time, which other programs on the machine hardly affect, and compared with FLOPs.
Weight sharing is measured with --sharing_config: the same model with and without, in turns. With
few --tokens, much of the difference is LAMB, which has fewer weights to update with sharing. Prints
tables and one line of JSON. --plot needs matplotlib.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import resource
import statistics
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.modeling.flops import training_flops
from benchmarks import drawing, machine
from benchmarks.path_lists import define_path_list
from benchmarks.random_step import PRECISIONS, RandomStep, predictions_of

#: A weight, and its two moments, are float32, and so are the gradients replicas exchange.
_WEIGHT_BYTES = 4

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    sizes = [f"albert_{size}_v2" for size in ("base", "large", "xlarge", "xxlarge")]
    define_path_list("configs", sizes, "Models to measure: presets or JSON files.")
    flags.DEFINE_list("layers", [], "Measure the first model with so many layers, too.")
    flags.DEFINE_list("seq_lengths", ["128"], "Positions of an example.")
    flags.DEFINE_integer("tokens", 512, "Tokens of a step.", 1)
    flags.DEFINE_enum("precision", "bf16", list(PRECISIONS), "Compute type of the products.")
    flags.DEFINE_integer("turns", 3, "Steps that are timed, after one that is not.", 1)
    define_path("sharing_config", "albert_base_v2", "Model to measure sharing on; '': none.")
    define_path("plot", None, "File for the picture, such as scaling.png.")


def parameters(config: AlbertConfig) -> int:
    """Weights of the pretraining model, from its configuration."""
    e, h, f = config.embedding_size, config.hidden_size, config.intermediate_size
    layers, inner = config.num_hidden_layers, config.inner_group_num
    attention, ffn = 4 * (h * h + h) + 2 * h, 2 * h * f + f + h + 2 * h
    embeddings = (config.vocab_size + config.type_vocab_size + config.max_position_embeddings) * e
    projection = 0 if e == h else (e + 1) * h
    blocks = inner * (
        attention * len({config.attention_group(layer) for layer in range(layers)})
        + ffn * len({config.ffn_group(layer) for layer in range(layers)})
    )
    heads = (h + 1) * h + (h + 1) * e + 2 * e + config.vocab_size + 2 * h + 2
    return embeddings + 2 * e + projection + blocks + heads


class TimedStep:
    """A training step that gives its cost.

    Raises:
      AlbertError: the model has other weights than `parameters` says.
    """

    def __init__(self, config: AlbertConfig, seq_length: int) -> None:
        self._step = RandomStep(
            config, seq_length, max(1, FLAGS.tokens // seq_length), PRECISIONS[FLAGS.precision]
        )
        found = self._step.model.count_params()
        if found != parameters(config):
            raise AlbertError(f"The model has {found} weights, not {parameters(config)}.")
        self._step()  # Traces and compiles.

    def __call__(self) -> tuple[float, float]:
        """Seconds of one step on the clock and of the processors."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        began = time.perf_counter()
        self._step()
        seconds = time.perf_counter() - began
        now = resource.getrusage(resource.RUSAGE_SELF)
        return seconds, now.ru_utime + now.ru_stime - usage.ru_utime - usage.ru_stime


def measure(name: str, config: AlbertConfig, seq_length: int) -> dict[str, Any]:
    """The cost of one model at one length."""
    step = TimedStep(config, seq_length)
    clock, processor = zip(*(step() for _ in range(FLAGS.turns)))
    tokens = max(1, FLAGS.tokens // seq_length) * seq_length
    flops = training_flops(config, seq_length, predictions_of(seq_length)) / seq_length
    del step
    gc.collect()
    return {
        "config": name,
        "hidden_size": config.hidden_size,
        "layers": config.num_hidden_layers,
        "seq_length": seq_length,
        "flops_per_token": flops,
        "seconds_per_token": statistics.median(clock) / tokens,
        "processor_seconds_per_token": statistics.median(processor) / tokens,
        "spread": [min(processor) / tokens, max(processor) / tokens],
    }


def sharing_figures(name: str) -> dict[str, Any]:
    """What sharing saves, counted."""
    config = AlbertConfig.load(name)
    counts = [
        parameters(dataclasses.replace(config, parameter_sharing=sharing))
        for sharing in ("all", "none")
    ]
    return {
        "config": name,
        "parameters": counts,
        "optimizer_bytes": [2 * _WEIGHT_BYTES * count for count in counts],
        "all_reduce_bytes": [_WEIGHT_BYTES * count for count in counts],
    }


def sharing_ratio(name: str, seq_length: int) -> dict[str, Any]:
    """Seconds of a step with sharing relative to one without, in turns."""
    config = AlbertConfig.load(name)
    shared, own = (
        TimedStep(dataclasses.replace(config, parameter_sharing=sharing), seq_length)
        for sharing in ("all", "none")
    )
    pairs = [(shared(), own()) for _ in range(FLAGS.turns)]
    return {
        "config": name,
        "seq_length": seq_length,
        "clock": statistics.median(a[0] / b[0] for a, b in pairs),
        "processor": statistics.median(a[1] / b[1] for a, b in pairs),
    }


def plot(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Draws processor seconds a token over the FLOP model, one colour a length."""
    pyplot = drawing.load_pyplot()
    from matplotlib import ticker

    rate = statistics.median(r["flops_per_token"] / r["processor_seconds_per_token"] for r in rows)
    figure, axes = pyplot.subplots(figsize=(7, 5))
    lengths = sorted({row["seq_length"] for row in rows})
    for length in lengths:
        points = [row for row in rows if row["seq_length"] == length]
        xs = [row["flops_per_token"] / 1e9 for row in points]
        ys = [1e3 * row["processor_seconds_per_token"] for row in points]
        axes.scatter(xs, ys, label=f"length {length}", zorder=2)
        # The other lengths of a model lie beside the first one.
        for x, y, row in zip(xs, ys, points if length == lengths[0] else []):
            name = os.path.basename(row["config"]).removeprefix("albert_").removesuffix("_v2")
            axes.annotate(
                f"{name}, {row['layers']} layers", (x, y), (6, -11), textcoords="offset points",
                fontsize=7,
            )  # fmt: skip
    ends = [f(row["flops_per_token"] for row in rows) / 1e9 for f in (min, max)]
    line = [1e12 * end / rate for end in ends]
    axes.plot(ends, line, "--", color="grey", label=f"{rate / 1e9:.0f} GFLOP per processor second")
    axes.set(
        xscale="log", yscale="log", xlabel="GFLOP a token (forward and backward pass, model)",
        ylabel="processor milliseconds a token (measured)", title="Cost of a pretraining token",
    )  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.margins(x=0.3)
    axes.grid(True, alpha=0.3)
    axes.legend()
    drawing.save(figure, path, dpi=120)


def _measure_all() -> list[dict[str, Any]]:
    models = [(name, AlbertConfig.load(name)) for name in FLAGS.configs]
    if models:
        name, config = models[0]
        for layers in FLAGS.layers:
            models.append((name, dataclasses.replace(config, num_hidden_layers=int(layers))))
    print(
        f"{'':<12}{'H':>6}{'L':>4}{'length':>8}{'GFLOP/token':>13}{'ms/token':>10}{'CPU ms':>9}"
        f"{'GFLOP/CPU s':>13}"
    )
    rows = []
    for length in FLAGS.seq_lengths:
        for name, config in models:
            row = measure(name, config, int(length))
            rows.append(row)
            processor = row["processor_seconds_per_token"]
            shape = f"{row['hidden_size']:>6}{row['layers']:>4}{row['seq_length']:>8}"
            print(
                f"{os.path.basename(name).replace('albert_', ''):<12}{shape}"
                f"{row['flops_per_token'] / 1e9:>13.2f}{1e3 * row['seconds_per_token']:>10.2f}"
                f"{1e3 * processor:>9.2f}{row['flops_per_token'] / processor / 1e9:>13.0f}",
                flush=True,
            )
    return rows


def _main() -> None:
    if FLAGS.plot:
        drawing.load_pyplot()  # What is missing should be told before measuring.
    rows = _measure_all()
    print(f"\n{'shared / own':<12}{'million weights':>18}{'LAMB MiB':>18}{'all-reduce MiB':>18}")
    figures = [sharing_figures(name) for name in FLAGS.configs]
    for row in figures:
        columns = [[count / 1e6 for count in row["parameters"]]]
        columns += [[x / 2**20 for x in row[k]] for k in ("optimizer_bytes", "all_reduce_bytes")]
        shown = "".join(f"{f'{a:,.0f} / {b:,.0f}':>18}" for a, b in columns)
        print(f"{os.path.basename(row['config']).replace('albert_', ''):<12}{shown}")
    ratio = None
    if FLAGS.sharing_config:
        ratio = sharing_ratio(FLAGS.sharing_config, int(FLAGS.seq_lengths[0]))
        print(
            f"\nA step with sharing takes {ratio['clock']:.2f} of the time of one without "
            f"({ratio['processor']:.2f} of its processor time): {ratio['config']}."
        )
    result = {"benchmark": "scaling", "precision": FLAGS.precision, "tokens": FLAGS.tokens}
    result |= {
        "rows": rows,
        "sharing": figures,
        "sharing_ratio": ratio,
        "machine": machine.describe(),
    }
    print(json.dumps(result))
    if FLAGS.plot:
        plot(rows, FLAGS.plot)


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
