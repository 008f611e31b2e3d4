# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways of padding, and another library, that train and evaluate in turns."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags

from albert_tf.data.pipeline import RecordSource
from albert_tf.keras2 import keras
from albert_tf.optimization.optimizer import create_optimizer
from albert_tf.optimization.schedule import WarmupPolynomialDecay
from albert_tf.training.loop import Predictor, TrainLoop, distribute
from albert_tf.training.specs import RunConfig
from albert_tf.training.strategy import fast_precisions, make_strategy
from albert_tf.training.task import Task
from benchmarks.finetune.peer import PeerContestant

#: Which batches may be padded to a few lengths, and which are all padded to the longest.
WAYS = {"by length": False, "padded": True}
#: The other library, if there is one.
PEER = "transformers"
#: Where the processor is shared, wall time depends on the others and processor time hardly does.
CLOCKS = ("wall", "processor")

#: What is counted, by the kind of work. Each training turn has other texts, with other lengths; all
#: evaluations have the same examples.
UNITS = {"training": "tokens", "evaluating": "examples"}
#: Padded batches all take the same time, so a turn has this many times fewer of them.
_FEWER_PADDED = 8
#: Starts the other library: takes the precision, what to train on and what to evaluate.
OpenPeer = Callable[[str, RecordSource, RecordSource], PeerContestant]

FLAGS = flags.FLAGS


class Turn(NamedTuple):
    """What a contestant did in a turn: seconds by CLOCKS, and the number of `UNITS`."""

    wall: float
    processor: float
    amount: float


class Contestant:
    """One way of padding: trains without end, and evaluates again and again.

    Args:
      task: whose model it is.
      model: shared with the other contestant.
      strategy: in whose scope it was made.
      config: of the run.
      training: what to train on.
      held_out: what to evaluate.
      batches: training batches of a turn.

    Attributes:
      work: what it does in a turn, by a key of UNITS.
      tokens: number of tokens trained on so far, without padding.
      positions: number of tokens trained on so far, with padding.
    """

    def __init__(
        self,
        task: Task,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        config: RunConfig,
        training: RecordSource,
        held_out: RecordSource,
        batches: int,
    ) -> None:
        size = config.train_batch_size
        self._held_out = distribute(strategy, held_out.eval_input_fn, size)
        self._predictor = Predictor(strategy, task, model, jit_compile=False)
        self.tokens = self.positions = 0.0
        # At a rate of 0 both keep the same weights.
        schedule = WarmupPolynomialDecay(learning_rate=1e-9, num_train_steps=1, num_warmup_steps=0)
        with strategy.scope():
            optimizer = create_optimizer("adamw", schedule, model.named_weights())
        self._loop = TrainLoop(strategy, task, model, optimizer, schedule, config)
        self._batches = iter(distribute(strategy, training.train_input_fn, size))
        self._batches_of_turn = batches
        self.work: dict[str, Callable[[], Any]] = {
            "evaluating": self.evaluate,
            "training": self.train,
        }

    def train(self) -> None:
        """Trains for a turn."""
        metrics = self._loop.run(self._batches, self._batches_of_turn)
        self.tokens += metrics["tokens"].sum()
        self.positions += metrics["positions"].sum()

    def evaluate(self) -> dict[str, np.ndarray]:
        """Outputs for all examples, in their order."""
        batches = iter(self._held_out)
        parts = list(iter(lambda: self._predictor(batches), None))
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(outputs.pop("example_index"))
        return {name: values[order] for name, values in outputs.items()}


def compare(
    task: Task,
    open_sources: Callable[[bool], tuple[RecordSource, RecordSource]],
    open_peer: OpenPeer | None = None,
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Lets both ways of padding take turns.

    Args:
      task: whose model is used.
      open_sources: makes what to train on and what to evaluate, given whether to pad.
      open_peer: starts the other library; None: there is none.

    Returns:
      The figures, and what each way gave for the examples evaluated.
    """
    config = RunConfig("unused", train_batch_size=FLAGS.batch_size, learning_rate=1e-9)
    strategy = make_strategy(config)
    precision = fast_precisions(strategy)[0] if FLAGS.precision == "auto" else FLAGS.precision
    with strategy.scope():
        model = task.build_model(precision)
    sources = {way: open_sources(pad) for way, pad in WAYS.items()}
    batches = {
        way: max(1, FLAGS.batches // _FEWER_PADDED) if pad else FLAGS.batches
        for way, pad in WAYS.items()
    }
    contestants = {
        way: Contestant(task, model, strategy, config, *sources[way], batches[way]) for way in WAYS
    }
    with contextlib.ExitStack() as stack:
        if open_peer:
            peer = open_peer(precision, *sources["padded"])
            contestants[PEER] = stack.enter_context(contextlib.closing(peer))
        turns, outputs = _take_turns(contestants, sources["padded"][1].num_examples)
        figures = {what: _figures(taken) for what, taken in turns.items()}
        for way, contestant in contestants.items():
            share = 1.0 - contestant.tokens / contestant.positions
            figures["training"][way]["padding_share"] = round(float(share), 3)
    return {"precision": precision, **figures}, outputs


def _take_turns(
    contestants: Mapping[str, Contestant | PeerContestant], examples: int
) -> tuple[dict[str, dict[str, list[Turn]]], dict[str, dict[str, np.ndarray]]]:
    """Returns the turns by work and contestant, and what each way of padding gave.

    Args:
      contestants: by name.
      examples: number of examples of an evaluation.
    """
    turns: dict[str, dict[str, list[Turn]]] = {what: {} for what in UNITS}
    outputs = {}
    for number in range(FLAGS.turns + 1):
        for what in UNITS:
            for way, contestant in contestants.items():
                tokens = contestant.tokens
                wall, processor = time.perf_counter(), time.process_time()
                result = contestant.work[what]()
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                amount = contestant.tokens - tokens if what == "training" else examples
                if number:  # The first one also traces and compiles, for each length.
                    turns[what].setdefault(way, []).append(Turn(wall, processor, amount))
                if what == "evaluating" and way in WAYS:
                    outputs[way] = result
    return turns, outputs


def _figures(turns: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    """Rates of each contestant, and ratios of them; by wall time and by processor time."""
    figures: dict[str, Any] = {way: {} for way in turns}
    for clock in CLOCKS:
        # The peer's processor time is another process's.
        rates = {
            way: [turn.amount / getattr(turn, clock) for turn in taken]
            for way, taken in turns.items()
            if way != PEER or clock == "wall"
        }
        for way, values in rates.items():
            figures[way][f"per_{clock}_second"] = round(statistics.median(values), 1)
        # Turns stand beside each other in time, so other load on the machine hits both.
        figures[f"{clock}_ratio"] = _ratio(rates["by length"], rates["padded"])
        if PEER in rates:
            figures["peer_ratio"] = _ratio(rates["by length"], rates[PEER])
    return figures


def _ratio(rates: Sequence[float], others: Sequence[float]) -> list[float]:
    """Returns the median, the least and the largest ratio of the turns."""
    ratios = [a / b for a, b in zip(rates, others)]
    return [round(value, 2) for value in (statistics.median(ratios), min(ratios), max(ratios))]
