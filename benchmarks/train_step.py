# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the pretraining step and compares it with its matrix products and with other libraries.

  python -m benchmarks.train_step --config=albert_base_v2 --seq_length=128 --batch_size=16 \\
    --peer=transformers --peer_mode=compile --peer_python=.venv-peers/torch/bin/python

Ours is the whole step: input, forward and backward pass, clipping, LAMB. "products" are only the
step's matrix products, with its shapes and type; their share of the step's time is ceiling_ratio.
The peer is another library. It runs steps of the same size, with AdamW and one batch that is
already in memory, in its own process, which waits while the others are measured. The peer "ours" is
this project's step in the environment of --peer_python, such as another TensorFlow. All take turns.
Figures are medians over the turns, with minimum and maximum; ratios compare rates of the same turn.
GFLOP/s count useful work only (albert_tf.modeling.flops), for the peer as for us. Prints a table
and one line of JSON.

The TF1 release (google-research/albert) is not among the peers: it needs TensorFlow 1.15, which has
packages up to Python 3.7 only.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.modeling.flops import training_flops
from benchmarks import machine
from benchmarks.peers.protocol import Peer, PeerError
from benchmarks.random_step import PRECISIONS, RandomStep, predictions_of, random_columns

_PEERS = ("transformers", "transformers_tf", "modelgarden", "ours")

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
        "peer", None, _PEERS, "Library to compare with; ours: this one in another environment."
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
        "ours does. The losses of transformers take logits of all; Model Garden's never does."
    )  # fmt: skip


class Product(NamedTuple):
    """A product of [batch, m, k] and [batch, k, n], which the step makes `count` times.

    `transposed`: the second factor lies in memory as [batch, n, k].
    """

    count: int
    batch: int
    m: int
    k: int
    n: int
    transposed: bool = False

    def flops(self) -> int:
        """Operations of all of them, forward and backward."""
        return 3 * 2 * self.count * self.batch * self.m * self.k * self.n


def step_products(config: AlbertConfig, seq_length: int, batch_size: int) -> list[Product]:
    """The products of a step's forward pass.

    Raises:
      AlbertError: they are not the operations that the FLOP model counts.
    """
    e, h, f = config.embedding_size, config.hidden_size, config.intermediate_size
    rows = batch_size * seq_length
    masked = batch_size * predictions_of(seq_length)
    layers = config.num_hidden_layers * config.inner_group_num
    heads = batch_size * config.num_attention_heads
    head_size = h // config.num_attention_heads
    # The last layer computes the masked positions and that of [CLS].
    read = predictions_of(seq_length) + 1
    products = [
        Product(layers - 1, 1, rows, h, 3 * h),
        Product(1, 1, batch_size * read, h, h),
        Product(2, 1, rows, h, h),
        *(
            product
            for count, positions in ((layers - 1, seq_length), (1, read))
            for product in (
                Product(count, heads, positions, head_size, seq_length, transposed=True),
                Product(count, heads, positions, seq_length, head_size),
                Product(count, 1, batch_size * positions, h, h),
                Product(count, 1, batch_size * positions, h, f),
                Product(count, 1, batch_size * positions, f, h),
            )
        ),
        Product(1, 1, batch_size, h, h),
        Product(1, 1, batch_size, h, 2, transposed=True),
        Product(1, 1, masked, h, e),
        Product(1, 1, masked, e, config.vocab_size, transposed=True),
    ]
    if e != h:
        products.append(Product(1, 1, rows, e, h))
    counted = batch_size * training_flops(config, seq_length, predictions_of(seq_length))
    if sum(product.flops() for product in products) != counted:
        raise AlbertError("The step's products are not those of albert_tf.modeling.flops.")
    return products


class ProductsAlone:
    """The products of a step, forward and backward, and nothing else.

    Every product has factors of its own and an element of every result is used, so that the graph
    optimizer can neither drop nor join any; those of a layer are made in a loop over the layers.

    Args:
      products: of the forward pass.
      precision: "float32" or "bf16".
    """

    def __init__(self, products: Sequence[Product], precision: str) -> None:
        import tensorflow as tf

        dtype = tf.bfloat16 if precision == "bf16" else tf.float32
        rng = tf.random.Generator.from_seed(0)

        def random(product: Product, rows: int, columns: int) -> tf.Tensor:
            shape = [rows, columns] if product.batch == 1 else [product.batch, rows, columns]
            return tf.cast(rng.normal(shape), dtype)

        # By count: the product, its two factors, and the gradient of its result.
        factors: dict[int, list[tuple]] = {}
        for product in products:
            _, _, m, k, n, transposed = product
            second = (n, k) if transposed else (k, n)
            matrices = (random(product, *shape) for shape in ((m, k), second, (m, n)))
            factors.setdefault(product.count, []).append((transposed, *matrices))

        def element(result: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.reshape(result, [-1])[0], tf.float32)

        def one_round(group: list[tuple]) -> tf.Tensor:
            used = []
            for transposed, x, w, dy in group:
                left, right = (dy, x) if transposed else (x, dy)
                used += [
                    element(tf.matmul(x, w, transpose_b=transposed)),
                    element(tf.matmul(dy, w, transpose_b=not transposed)),
                    element(tf.matmul(left, right, transpose_a=True)),
                ]
            return tf.add_n(used)

        def rounds(count: int, group: list[tuple], total: tf.Tensor) -> tf.Tensor:
            return tf.while_loop(
                lambda i, _: i < count,
                lambda i, total: (i + 1, total + one_round(group)),
                (0, total),
                parallel_iterations=1,
            )[1]

        @tf.function(autograph=False)
        def run(steps: tf.Tensor) -> tf.Tensor:
            def step(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                for count, group in factors.items():
                    total = rounds(count, group, total)
                return i + 1, total

            start = (0, tf.constant(0.0))
            return tf.while_loop(lambda i, _: i < steps, step, start, parallel_iterations=1)[1]

        self._run = lambda steps: run(tf.constant(steps)).numpy()

    def __call__(self, steps: int) -> tuple[float, float]:
        """Makes the products of so many steps; gives the seconds, all together, and no loss."""
        began = time.perf_counter()
        self._run(steps)
        return time.perf_counter() - began, math.nan


class OurStep:
    """The real step on random records."""

    def __init__(self, config: AlbertConfig) -> None:
        self._step = RandomStep(
            config, FLAGS.seq_length, FLAGS.batch_size, PRECISIONS[FLAGS.precision]
        )

    def __call__(self, steps: int) -> tuple[float, float]:
        """Makes steps; gives their seconds, all together, and the last one's loss."""
        began = time.perf_counter()
        metrics = self._step(steps)
        return time.perf_counter() - began, float(metrics["loss"][-1])


def start_peer(config: AlbertConfig, folder: str) -> Peer:
    """Starts the peer on a batch of the same kind, of which it finds a file in the folder."""
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
        "threads": machine.describe()["cores"],
    }
    return Peer(FLAGS.peer, FLAGS.peer_python, setup)


def take_turns(
    contestants: dict[str, Callable[[int], tuple[float, float]]],
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of a step in every turn, and the last loss, of each."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    losses = {}
    for turn in range(FLAGS.turns + 1):
        for name, run in contestants.items():
            # The first turn traces and compiles, and is not counted.
            spent, losses[name] = run(FLAGS.steps if turn else 1)
            if turn:
                seconds[name].append(spent / FLAGS.steps)
    return seconds, losses


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def shown(values: dict[str, float], digits: int = 0, factor: float = 1) -> str:
    """One cell of the table."""
    middle, least, most = (
        f"{factor * values[key]:.{digits}f}" for key in ("median", "least", "most")
    )
    return f"{middle} ({least} … {most})"


def measure(config: AlbertConfig, peer: Peer | None) -> dict[str, Any]:
    """All figures, by the names that are printed."""
    products = step_products(config, FLAGS.seq_length, FLAGS.batch_size)
    contestants = {"ours": OurStep(config), "products": ProductsAlone(products, FLAGS.precision)}
    if peer:
        contestants["peer"] = peer
    seconds, losses = take_turns(contestants)
    gflop = sum(product.flops() for product in products) / 1e9

    def figures(name: str) -> dict[str, Any]:
        return {
            "sequences_per_second": spread([FLAGS.batch_size / s for s in seconds[name]]),
            "gflops": spread([gflop / s for s in seconds[name]]),
            "step_seconds": spread(seconds[name]),
            "loss": losses[name],
        }

    result = {
        **figures("ours"),
        "gemm_only_seconds": spread(seconds["products"]),
        "gemm_only_gflops": spread([gflop / s for s in seconds["products"]]),
        "ceiling_ratio": spread([g / s for s, g in zip(seconds["ours"], seconds["products"])]),
    }
    if peer:
        result["peer"] = {
            "name": FLAGS.peer,
            "mode": FLAGS.peer_mode if FLAGS.peer == "transformers" else "compile",
            "masked_only": FLAGS.peer_masked_only or FLAGS.peer in ("modelgarden", "ours"),
            "versions": peer.versions,
            **figures("peer"),
            "ratio": spread([p / s for s, p in zip(seconds["ours"], seconds["peer"])]),
        }
    return result


def _peer_name(peer: dict[str, Any]) -> str:
    return "other versions" if peer["name"] == "ours" else peer["name"]


def print_table(result: dict[str, Any]) -> None:
    """Prints what was measured, in 80 columns."""
    print(
        f"{os.path.basename(FLAGS.config)}, length {FLAGS.seq_length}, batch {FLAGS.batch_size}, "
        f"{FLAGS.precision}; {FLAGS.turns} turns of {FLAGS.steps} steps"
    )
    print(f"{'':<17}{'sequences/s':>22}{'GFLOP/s':>19}{'ms/step':>22}")
    rows = {"ours": result}
    if "peer" in result:
        rows[_peer_name(result["peer"])] = result["peer"]
    for name, row in rows.items():
        cells = shown(row["sequences_per_second"], 2), shown(row["gflops"])
        milliseconds = shown(row["step_seconds"], factor=1000)
        print(f"{name:<17}{cells[0]:>22}{cells[1]:>19}{milliseconds:>22}")
    cells = shown(result["gemm_only_gflops"]), shown(result["gemm_only_seconds"], factor=1000)
    print(f"{'products alone':<17}{'':>22}{cells[0]:>19}{cells[1]:>22}")
    print(f"ceiling_ratio, products / step: {shown(result['ceiling_ratio'], 2)}")
    if "peer" in result:
        peer = result["peer"]
        versions = ", ".join(f"{name} {version}" for name, version in peer["versions"].items())
        form = f"{peer['mode']}, logits of {'masked' if peer['masked_only'] else 'all'} positions"
        print(f"ours / {_peer_name(peer)}: {shown(peer['ratio'], 2)}\n  {form}; {versions}")
        print(f"  last losses: {result['loss']:.2f} and {peer['loss']:.2f}")


def _main() -> None:
    if FLAGS.peer and not FLAGS.peer_python:
        raise AlbertError(
            f"--peer={FLAGS.peer} needs --peer_python, the Python of its environment, which "
            "benchmarks/README.md sets up."
        )
    config = AlbertConfig.load(FLAGS.config)
    try:
        with contextlib.ExitStack() as stack:
            peer = None
            if FLAGS.peer:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                peer = stack.enter_context(contextlib.closing(start_peer(config, folder)))
            result = measure(config, peer)
    except PeerError as error:
        raise AlbertError(str(error)) from error
    print_table(result)
    shape = {k: FLAGS[k].value for k in ("config", "seq_length", "batch_size", "precision")}
    turns = {"turns": FLAGS.turns, "steps": FLAGS.steps}
    on = machine.describe()
    print(json.dumps({"benchmark": "train_step", **shape, **turns, **result, "machine": on}))


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
