# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the pretraining step and compares it with transformers or another version of ours.

  python -m benchmarks.train_step --config=albert_base_v2 --seq_length=128 --batch_size=16 \\
    --peer=transformers --peer_mode=compile --peer_python=.venv-peers/torch/bin/python

Ours is the whole step: input, forward and backward pass, clipping, LAMB. The peer runs steps of the
same size, with AdamW and one batch that is already in memory, in its own process, which waits while
ours is measured. The peer "ours" is this project's step in the environment of --peer_python, such
as another TensorFlow. Both take turns. Figures are medians over the turns, with minimum and
maximum; ratios compare rates of the same turn. GFLOP/s count useful work only
(benchmarks.flops), for the peer as for us. Prints a table and one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from benchmarks.common import describe_machine, markdown, show_spread, spread
from benchmarks.flops import training_flops
from benchmarks.peers.protocol import Peer, PeerError
from benchmarks.random_step import PRECISIONS, RandomStep, predictions_of, random_columns

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    define_path("config", "albert_base_v2", "The model: a preset or a JSON file.")
    flags.DEFINE_integer("seq_length", 128, "Positions of an example.", 1)
    flags.DEFINE_integer("batch_size", 16, "Examples of a step.", 1)
    flags.DEFINE_enum("precision", "bf16", list(PRECISIONS), "Compute type of the products.")
    flags.DEFINE_integer("turns", 5, "Turns of each.", 1)
    flags.DEFINE_integer("steps", 3, "Steps of a turn.", 1)
    flags.DEFINE_enum(
        "peer", None, ["transformers", "ours"], "What to compare with; ours: in another environment"
    )
    define_path("peer_python", None, "The Python of its environment, see the README.")
    flags.DEFINE_enum(
        "peer_mode",
        "compile",
        ("eager", "compile", "max_autotune"),
        "Of transformers: as it is, torch.compile, or torch.compile(mode='max-autotune').",
    )
    flags.DEFINE_bool(
        "peer_masked_only", False, "Let the peer's head predict the masked positions alone, as "
        "ours does. The losses of transformers take logits of all."
    )  # fmt: skip


def make_step(config: AlbertConfig) -> Callable[[int], tuple[float, float]]:
    """The real step on random records: makes steps, gives their seconds and the last loss."""
    step = RandomStep(config, FLAGS.seq_length, FLAGS.batch_size, PRECISIONS[FLAGS.precision])

    def run(steps: int) -> tuple[float, float]:
        began = time.perf_counter()
        metrics = step(steps)
        return time.perf_counter() - began, float(metrics["loss"][-1])

    return run


def start_peer(config: AlbertConfig, folder: str) -> Peer:
    """Starts the peer on a batch of the same kind, of which it finds a file in the folder.

    Raises:
      AlbertError: the peer has no such model, or no --peer_python was given.
    """
    if not FLAGS.peer_python:
        raise AlbertError(
            f"--peer={FLAGS.peer} needs --peer_python, the Python of its environment, which "
            "benchmarks/README.md sets up."
        )
    if config.parameter_sharing != "all" and FLAGS.peer != "ours":
        raise AlbertError(
            f"{FLAGS.config} has parameter_sharing {config.parameter_sharing!r}, which --peer "
            "cannot have; use 'all'."
        )
    path = os.path.join(folder, "batch.npz")
    batch = random_columns(config, FLAGS.seq_length, FLAGS.batch_size)
    labels = np.full_like(batch["input_ids"], -100)
    np.put_along_axis(labels, batch["masked_lm_positions"], batch["masked_lm_ids"], axis=1)
    np.savez(path, **batch, labels=labels)
    setup = {
        "config": config.to_dict(),
        "batch": path,
        "policy": PRECISIONS[FLAGS.precision],
        "mode": FLAGS.peer_mode,
        "masked_only": FLAGS.peer_masked_only,
        "threads": describe_machine()["cores"],
    }
    return Peer(FLAGS.peer, FLAGS.peer_python, setup)


def measure(contestants: dict[str, Callable[[int], tuple[float, float]]]) -> dict[str, Any]:
    """Lets the steps take turns; their figures by name, and the ratio of the rates."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    losses = {}
    for turn in range(FLAGS.turns + 1):
        for name, run in contestants.items():
            # The first turn traces and compiles, and is not counted.
            spent, losses[name] = run(FLAGS.steps if turn else 1)
            if turn:
                seconds[name].append(spent / FLAGS.steps)
    config, length = AlbertConfig.load(FLAGS.config), FLAGS.seq_length
    gflop = FLAGS.batch_size * training_flops(config, length, predictions_of(length)) / 1e9
    result: dict[str, Any] = {
        name: {
            "sequences_per_second": spread([FLAGS.batch_size / s for s in values]),
            "gflops": spread([gflop / s for s in values]),
            "step_seconds": spread(values),
            "loss": losses[name],
        }
        for name, values in seconds.items()
    }
    if "peer" in seconds:
        result["ratio"] = spread([p / s for s, p in zip(seconds["ours"], seconds["peer"])])
    return result


def _main() -> None:
    config = AlbertConfig.load(FLAGS.config)
    contestants: dict[str, Callable[[int], tuple[float, float]]] = {"ours": make_step(config)}
    try:
        with contextlib.ExitStack() as stack:
            if FLAGS.peer:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                peer = stack.enter_context(contextlib.closing(start_peer(config, folder)))
                contestants["peer"] = peer
            result = measure(contestants)
    except PeerError as error:
        raise AlbertError(str(error)) from error
    rows = [["", "sequences/s", "GFLOP/s", "ms/step", "last loss"]]
    for name in contestants:
        row = result[name]
        cells = (show_spread(row["sequences_per_second"], 2), show_spread(row["gflops"]))
        loss = f"{row['loss']:.2f}"
        rows.append([name, *cells, show_spread(row["step_seconds"], factor=1000), loss])
    names = ("config", "seq_length", "batch_size", "precision", "turns", "steps", "peer")
    settings = {name: FLAGS[name].value for name in names}
    print(", ".join(f"{name} {value}" for name, value in settings.items()))
    print(markdown(rows))
    if FLAGS.peer:
        masked_only = FLAGS.peer_masked_only or FLAGS.peer == "ours"
        result["versions"] = peer.versions
        print(f"ours / {FLAGS.peer}: {show_spread(result['ratio'], 2)}; {peer.versions}")
        print(f"{FLAGS.peer_mode}, logits of {'masked' if masked_only else 'all'} positions")
    print(json.dumps({**settings, **result, "machine": describe_machine()}))


if __name__ == "__main__":
    script.run(_main, define_flags)
