# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of fine-tuning and evaluation with transformers.

  python -m benchmarks.finetune --spm_model_file=30k-clean.model \\
    --albert_config_file=albert_base_v2 --glue_dir=glue --squad_file=dev-v1.1.json \\
    --peer_python=.venv-peers/torch/bin/python

Both read the same texts, with random weights, and group them by length: ours pads batches to a few
lengths, transformers to a multiple of 8, as its Trainer does. They take turns at training and at
evaluating on SST-2, CoLA and SQuAD 1.1. Training is counted in tokens without padding, because each
turn has other texts, and a turn has as many batches as are sorted together. Figures are medians of
the turns, with minimum and maximum. Prints a table and one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.data.context import InputContext
from albert_tf.data.length_batches import CHUNK_BATCHES, Sequences
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.optimization.optimizer import AlbertOptimizer
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.fine_tuning_task import FineTuningTask
from albert_tf.tasks.glue.run import read_split
from albert_tf.tasks.glue.tasks import TASKS
from albert_tf.tasks.squad.data import SquadSpec, read_squad
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.training.devices import fast_precisions, make_strategy
from albert_tf.training.loop import Predictor, TrainLoop, distribute
from albert_tf.training.specs import RunConfig
from albert_tf.weights.model_files import load_model_files
from benchmarks.common import describe_machine, markdown, show_spread, spread
from benchmarks.peers.protocol import Peer

FLAGS = flags.FLAGS
_OURS, _PEER = "albert_tf", "transformers"
#: Records read together for the other library.
_CHUNK = 64


def define_flags() -> None:
    """Defines the flags."""
    define_path("spm_model_file", None, "SentencePiece model.", required=True)
    define_path("albert_config_file", None, "Model.", required=True)
    define_path("glue_dir", None, "Folder with SST-2/ and CoLA/; none: they are left out.")
    flags.DEFINE_list("glue_tasks", ["SST-2", "CoLA"], "Tasks of GLUE to train on.")
    define_path("squad_file", None, "Questions of SQuAD 1.1; none: they are left out.")
    flags.DEFINE_integer("questions", 500, "Questions to answer, at random.", 1)
    flags.DEFINE_integer("glue_length", 128, "Longest sequence of GLUE.", 16)
    flags.DEFINE_integer("squad_length", 384, "Longest window of SQuAD.", 64)
    flags.DEFINE_integer("batch_size", 32, "Of training and evaluation.", 1)
    flags.DEFINE_integer("batches", CHUNK_BATCHES, "Training batches of a turn.", 1)
    flags.DEFINE_integer("turns", 3, "Turns; the median counts.", 1)
    flags.DEFINE_enum("precision", "auto", ["auto", "float32", "mixed_bfloat16"], "Precision.")
    define_path("peer_python", None, "Python of transformers; none: ours alone.")
    flags.DEFINE_enum("peer_mode", "eager", ["eager", "compile"], "How the peer runs its model.")


def open_glue(name: str) -> tuple[FineTuningTask, Sequences, Sequences]:
    """A task of GLUE, what to train on, and its development set.

    Raises:
      AlbertError: there is no such task, or it has numbers in place of labels.
    """
    glue = TASKS.get(name.lower())
    if glue is None or not glue.labels:
        raise AlbertError(f"--glue_tasks: {name} is no task of GLUE with labels.")
    found = load_model_files(None, FLAGS.albert_config_file, FLAGS.spm_model_file)
    task = TextClassificationTask(*found, ClassificationSpec(glue.labels, FLAGS.glue_length))
    train, dev = (read_split(glue.splits[kind], FLAGS.glue_dir) for kind in ("train", "dev"))
    return (
        task,
        task.open_examples(train, "train", training=True).source,
        task.open_examples(dev, "dev").source,
    )


def open_squad(folder: str) -> tuple[FineTuningTask, Sequences, Sequences]:
    """SQuAD 1.1, all questions to train on, and some of the paragraphs to answer."""
    path = os.path.join(folder, "questions.json")
    files.write_json(path, {"version": "1.1", "data": list(_some_articles())})
    found = load_model_files(None, FLAGS.albert_config_file, FLAGS.spm_model_file)
    task = SquadTask(*found, SquadSpec("1.1", max_seq_length=FLAGS.squad_length))
    train, asked = (read_squad(name) for name in (FLAGS.squad_file, path))
    return (
        task,
        task.open_examples(train, "train", training=True).source,
        task.open_examples(asked, "dev").source,
    )


def _some_articles() -> Iterator[dict[str, Any]]:
    """Paragraphs of the questions' file in random order, each as an article of its own."""
    articles = files.read_json(FLAGS.squad_file, "SQuAD file")["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    wanted = FLAGS.questions
    for i in np.random.default_rng(0).permutation(len(paragraphs)):
        if wanted <= 0:
            return
        wanted -= len(paragraphs[i]["qas"])
        yield {"title": str(i), "paragraphs": [paragraphs[i]]}


def our_work(
    task: FineTuningTask, training: Sequences, held_out: Sequences
) -> tuple[str, Callable[[], float], Callable[[], float]]:
    """The precision, and functions for a turn: train, giving the tokens so far, and evaluate."""
    config = RunConfig("unused", train_batch_size=FLAGS.batch_size, learning_rate=1e-9)
    strategy = make_strategy(config)
    precision = fast_precisions(strategy)[0] if FLAGS.precision == "auto" else FLAGS.precision
    with strategy.scope():
        model = task.build_model(precision)
        optimizer = AlbertOptimizer("adamw", 1e-9, model.named_weights())
    loop = TrainLoop(strategy, task, model, optimizer, config)
    predictor = Predictor(strategy, task, model, jit_compile=False)
    batches = iter(distribute(strategy, training.train_input_fn, FLAGS.batch_size))
    examples = distribute(strategy, held_out.eval_input_fn, FLAGS.batch_size)
    tokens = 0.0

    def train() -> float:
        nonlocal tokens
        tokens += float(loop.run(batches, FLAGS.batches)["tokens"].sum())
        return tokens

    def evaluate() -> float:
        given = iter(examples)
        while predictor(given) is not None:
            pass
        return 0.0

    return precision, train, evaluate


def start_peer(
    task: FineTuningTask, policy: str, what: str, source: Sequences, folder: str
) -> Peer:
    """transformers on the same records; a step trains on a batch or evaluates all examples."""
    spans, train = isinstance(task, SquadTask), what == "training"
    targets = ("start_positions", "end_positions") if spans else ("label_ids",)
    path = os.path.join(folder, f"{what}.npz")
    write_rows(path, source, targets if train else ())
    setup = {
        "config": task.config.to_dict(), "policy": policy, "mode": FLAGS.peer_mode,
        "threads": describe_machine()["cores"], "batch_size": FLAGS.batch_size, "examples": path,
        "num_labels": None if spans else len(task.spec.labels), "train": train,
    }  # fmt: skip
    return Peer("fine_tuning_transformers", FLAGS.peer_python, setup)


def write_rows(path: str, source: Sequences, targets: tuple[str, ...]) -> None:
    """Writes what the driver reads: the sequences of all records, unpadded, and their targets.

    Args:
      path: of the .npz file, with int arrays: "ids" and "segments" [tokens] (all sequences one
        after the other), "lengths" [records], and "targets" [records, targets].
      source: the records.
      targets: names of the columns with labels or positions to predict; if there are none, the file
        has the lengths in their place.
    """
    ids, segments, lengths, numbers = [], [], [], []
    for batch in source.eval_input_fn(InputContext(_CHUNK)):
        batch = {name: values.numpy() for name, values in batch.items()}
        batch = {name: values[batch["example_index"] >= 0] for name, values in batch.items()}
        used = batch["input_mask"].astype(bool)
        ids.append(batch["input_word_ids"][used])
        segments.append(batch["input_type_ids"][used])
        lengths.append(used.sum(axis=1))
        numbers.append(np.stack([batch[name] for name in targets], 1) if targets else lengths[-1])
    columns = {"ids": ids, "segments": segments, "lengths": lengths, "targets": numbers}
    np.savez(path, **{name: np.concatenate(parts) for name, parts in columns.items()})


def compare(
    task: FineTuningTask, training: Sequences, held_out: Sequences, folder: str
) -> dict[str, dict[str, dict[str, float]]]:
    """Rates of training (tokens a second) and evaluation (examples a second), and their ratios."""
    precision, train, evaluate = our_work(task, training, held_out)
    work = {"training": {_OURS: train}, "evaluating": {_OURS: evaluate}}
    rates: dict[str, dict[str, list[float]]] = {what: {} for what in work}
    with contextlib.ExitStack() as stack:
        if FLAGS.peer_python:
            for what, source in {"training": training, "evaluating": held_out}.items():
                peer = start_peer(task, precision, what, source, folder)
                stack.enter_context(contextlib.closing(peer))
                work[what][_PEER] = _peer_turn(peer, what)
        done = {_OURS: 0.0, _PEER: 0.0}
        for turn in range(FLAGS.turns + 1):
            for what, contestants in work.items():
                for who, run in contestants.items():
                    began = time.perf_counter()
                    total = run()
                    seconds = time.perf_counter() - began
                    amount = held_out.num_examples
                    if what == "training":
                        amount, done[who] = total - done[who], total
                    if turn:  # The first one also traces and compiles, for each length.
                        rates[what].setdefault(who, []).append(amount / seconds)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for what, found in rates.items():
        figures[what] = {who: spread(values) for who, values in found.items()}
        if _PEER in found:
            ratios = [ours / theirs for ours, theirs in zip(found[_OURS], found[_PEER])]
            figures[what]["ratio"] = spread(ratios)
    return figures


def _peer_turn(peer: Peer, what: str) -> Callable[[], float]:
    def run() -> float:
        peer(FLAGS.batches if what == "training" else 1)
        return peer.facts()["tokens"]

    return run


def _main() -> None:
    openers: dict[str, Callable[[str], tuple]] = {}
    if FLAGS.glue_dir:
        for name in FLAGS.glue_tasks:
            openers[name] = lambda _, name=name: open_glue(name)
    if FLAGS.squad_file:
        openers["SQuAD"] = open_squad
    results, rows = {}, [["", "unit per second", _OURS, _PEER, "ratio"]]
    for name, open_task in openers.items():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = compare(*open_task(folder), folder)
        for what, unit in {"training": "tokens", "evaluating": "examples"}.items():
            found = results[name][what]
            cells = [show_spread(found[who], 1) if who in found else "" for who in (_OURS, _PEER)]
            ratio = show_spread(found["ratio"], 2) if "ratio" in found else ""
            rows.append([f"{name}, {what}", unit, *cells, ratio])
    print(markdown(rows))
    described = {"model": FLAGS.albert_config_file, "machine": describe_machine()}
    print(json.dumps({**described, "results": results}))


if __name__ == "__main__":
    script.run(_main, define_flags)
