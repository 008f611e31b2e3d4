# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the gain from batches of similar length, and how fast SQuAD's features are built.

  python -m benchmarks.finetune --spm_model_file=30k-clean.model --albert_config_file=albert_tiny \\
    --glue_dir=glue --squad_file=dev-v1.1.json

The same model, with random weights, reads the same texts in batches padded to a few lengths and in
batches padded to the maximum length, in turns: training and evaluation on SST-2 and CoLA, and
prediction on SQuAD. With --peer_python, transformers trains and evaluates in the same turns, in
batches grouped by length and padded to a multiple of 8, as its Trainer can. Then each step of SQuAD
is timed, from text to records and from outputs to scores. Prints tables and one line of JSON.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.data.pipeline import RecordSource
from albert_tf.io import files
from albert_tf.io.text_tables import TextExample
from albert_tf.keras2 import keras
from albert_tf.optimization.optimizer import create_optimizer
from albert_tf.optimization.schedule import WarmupPolynomialDecay
from albert_tf.tasks.base import load_model_files
from albert_tf.tasks.classification.glue_tasks import find_task
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.glue.data import read_split
from albert_tf.tasks.squad.answers import extract_answers, predictions
from albert_tf.tasks.squad.data import read_squad
from albert_tf.tasks.squad.features import SquadSpec, build_squad_records
from albert_tf.tasks.squad.scoring import score
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.windows import Windows, make_windows
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.loop import Predictor, TrainLoop, distribute
from albert_tf.training.specs import RunConfig
from albert_tf.training.strategy import fast_precisions, make_strategy
from albert_tf.training.task import Task
from benchmarks import machine
from benchmarks.peers.protocol import Peer

#: Milliseconds a question of google-research/albert squad_utils.convert_examples_to_features, for
#: contexts of 735 characters; measured once, on one core of a similar machine.
OFFICIAL_MILLISECONDS = 25.0
#: Which batches may be padded to a few lengths, and which are all padded to the longest.
WAYS = {"by length": False, "padded": True}
#: The other library, if there is one.
PEER = "transformers"
#: Where the processor is shared, wall time depends on the others and processor time hardly does.
CLOCKS = ("wall", "processor")
TOP = 20

FLAGS = flags.FLAGS


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
    flags.DEFINE_integer("batch_size", 32, "Of training, evaluation and prediction.", 1)
    flags.DEFINE_integer("batches", 32, "Training batches a turn; 64 hold all lengths evenly.", 1)
    flags.DEFINE_integer("turns", 3, "Turns; the median counts.", 1)
    flags.DEFINE_enum("precision", "auto", ["auto", "float32", "mixed_bfloat16"], "Precision.")
    define_path("peer_python", None, "Python of transformers, which then takes turns in GLUE too.")
    flags.DEFINE_enum("peer_mode", "eager", ["eager", "compile"], "How the peer runs its model.")
    flags.DEFINE_integer("workers", 0, "Also cut windows of SQuAD with so many processes.", 0)
    define_path("json", None, "File to write the figures to.")


class Contestant:
    """One way of padding: trains without end, and evaluates again and again.

    Args:
      task: whose model it is.
      model: shared with the other contestant.
      strategy: in whose scope it was made.
      config: of the run.
      training: what to train on, if anything.
      held_out: what to evaluate.
    """

    def __init__(
        self,
        task: Task,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        config: RunConfig,
        training: RecordSource | None,
        held_out: RecordSource,
    ) -> None:
        size = config.train_batch_size
        self._held_out = distribute(strategy, held_out.eval_input_fn, size)
        self._predictor = Predictor(strategy, task, model, jit_compile=False)
        self.tokens = self.positions = 0.0
        self.work: dict[str, Callable[[], Any]] = {"evaluating": self.evaluate}
        if training is None:
            return
        # At a rate of 0 both keep the same weights.
        schedule = WarmupPolynomialDecay(learning_rate=1e-9, num_train_steps=1, num_warmup_steps=0)
        with strategy.scope():
            optimizer = create_optimizer("adamw", schedule, model.named_weights())
        self._loop = TrainLoop(strategy, task, model, optimizer, schedule, config)
        self._batches = iter(distribute(strategy, training.train_input_fn, size))
        self.work["training"] = self.train

    def train(self) -> None:
        """Trains for a turn."""
        metrics = self._loop.run(self._batches, FLAGS.batches)
        self.tokens += metrics["tokens"].sum()
        self.positions += metrics["positions"].sum()

    def evaluate(self) -> dict[str, np.ndarray]:
        """Outputs for all examples, in their order."""
        batches = iter(self._held_out)
        parts = list(iter(lambda: self._predictor(batches), None))
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(outputs.pop("example_index"))
        return {name: values[order] for name, values in outputs.items()}


class PeerContestant:
    """transformers, on the same examples.

    Args:
      config: of the model.
      tokenizer: of the texts.
      policy: the precision.
      examples: for "training" and "evaluating", with one text each, and all labels.
      folder: for files that last as long as the contestant.
    """

    def __init__(
        self,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        policy: str,
        examples: Mapping[str, tuple[list[TextExample], Sequence[str]]],
        folder: str,
    ) -> None:
        setup = {
            "config": config.to_dict(), "policy": policy, "mode": FLAGS.peer_mode,
            "threads": machine.describe()["cores"], "batch_size": FLAGS.batch_size,
        }  # fmt: skip
        self._peers = {}
        for what, (rows, labels) in examples.items():
            path = os.path.join(folder, f"{what}.npz")
            _write_ids(path, tokenizer, rows, labels)
            of_peer = {**setup, "examples": path, "train": what == "training"}
            self._peers[what] = Peer("fine_tuning_transformers", FLAGS.peer_python, of_peer)
        steps = {"training": FLAGS.batches, "evaluating": 1}
        self.work = {what: functools.partial(p, steps[what]) for what, p in self._peers.items()}

    def close(self) -> None:
        """Ends the processes."""
        for peer in self._peers.values():
            peer.close()


def _write_ids(
    path: str, tokenizer: Tokenizer, examples: Sequence[TextExample], labels: Sequence[str]
) -> None:
    pieces = tokenizer.encode_batch([example.text for example in examples])
    longest = FLAGS.glue_length - 2
    ids = [[tokenizer.cls_id, *text[:longest], tokenizer.sep_id] for text in pieces]
    np.savez(
        path,
        ids=np.concatenate(ids).astype(np.int32),
        lengths=[len(text) for text in ids],
        labels=[labels.index(example.label) for example in examples],
    )


def compare(
    task: Task,
    open_sources: Callable[[bool], tuple[RecordSource | None, RecordSource]],
    open_peer: Callable[[str], PeerContestant] | None = None,
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Lets both ways of padding take turns.

    Args:
      task: whose model is used.
      open_sources: makes what to train on and what to evaluate, given whether to pad.
      open_peer: starts the other library, given the precision.

    Returns:
      The figures, and what each way gave for the examples evaluated.
    """
    config = RunConfig("unused", train_batch_size=FLAGS.batch_size, learning_rate=1e-9)
    strategy = make_strategy(config)
    precision = fast_precisions(strategy)[0] if FLAGS.precision == "auto" else FLAGS.precision
    keras.mixed_precision.set_global_policy(precision)
    with strategy.scope():
        model = task.build_model()
    sources = {way: open_sources(pad) for way, pad in WAYS.items()}
    contestants = {
        way: Contestant(task, model, strategy, config, *pair) for way, pair in sources.items()
    }
    if open_peer:
        contestants[PEER] = open_peer(precision)
    seconds: dict[str, dict[str, list[tuple[float, float]]]] = {}
    outputs = {}
    for turn in range(FLAGS.turns + 1):
        for what in contestants["padded"].work:
            for way, contestant in contestants.items():
                wall, processor = time.perf_counter(), time.process_time()
                result = contestant.work[what]()
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                if turn:  # The first one also traces and compiles.
                    seconds.setdefault(what, {}).setdefault(way, []).append((wall, processor))
                if what == "evaluating" and way in WAYS:
                    outputs[way] = result
    if open_peer:
        contestants[PEER].close()
    examples = {
        "training": FLAGS.batches * FLAGS.batch_size,
        "evaluating": sources["padded"][1].num_examples,
    }
    figures = {what: _figures(examples[what], taken) for what, taken in seconds.items()}
    if "training" in figures:
        for way in WAYS:
            contestant = contestants[way]
            share = 1.0 - contestant.tokens / contestant.positions
            figures["training"][way]["padding_share"] = round(float(share), 3)
    return {"precision": precision, **figures}, outputs


def _figures(examples: int, seconds: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Examples a second of each way, and the ratio; by wall time and by processor time."""
    figures: dict[str, Any] = {way: {} for way in seconds}
    for i, clock in enumerate(CLOCKS):
        taken = {way: [pair[i] for pair in turns] for way, turns in seconds.items()}
        for way, values in taken.items():
            figures[way][f"per_{clock}_second"] = round(examples / statistics.median(values), 1)
        # Turns stand beside each other in time, so other load on the machine hits both.
        figures[f"{clock}_ratio"] = _ratio(taken["padded"], taken["by length"])
    if PEER in figures:
        # The peer's processor time is another process's.
        figures[PEER].pop("per_processor_second")
        walls = [[pair[0] for pair in seconds[way]] for way in (PEER, "by length")]
        figures["peer_ratio"] = _ratio(*walls)
    return figures


def _ratio(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    """Returns the median, the least and the largest ratio of the turns."""
    ratios = [a / b for a, b in zip(slow, fast)]
    return [round(value, 2) for value in (statistics.median(ratios), min(ratios), max(ratios))]


def measure_glue(name: str, folder: str) -> dict[str, Any]:
    """Trains on one task of GLUE and evaluates its development set."""
    glue = find_task(name)
    splits = [
        read_split(glue, glue.of(kind)[0], FLAGS.glue_dir).examples for kind in ("train", "dev")
    ]
    # As many examples as a turn trains on, in random order: their lengths are those of the whole.
    order = np.random.default_rng(0).permutation(len(splits[0]))
    train = [splits[0][i] for i in order[: FLAGS.batches * FLAGS.batch_size]]
    found = load_model_files(None, FLAGS.albert_config_file, FLAGS.spm_model_file)
    task = TextClassificationTask(*found, ClassificationSpec(glue.labels, FLAGS.glue_length))

    def open_sources(pad: bool) -> tuple[RecordSource, RecordSource]:
        return (
            task.open_examples(train, "train", folder, train_seed=1, pad_to_max=pad).source,
            task.open_examples(splits[1], "dev", folder, pad_to_max=pad).source,
        )

    def open_peer(policy: str) -> PeerContestant:
        examples = {
            what: (rows, glue.labels)
            for what, rows in (("training", train), ("evaluating", splits[1]))
        }
        return PeerContestant(task.config, task.tokenizer, policy, examples, folder)

    figures, outputs = compare(task, open_sources, open_peer if FLAGS.peer_python else None)
    by_length, padded = (outputs[way]["probabilities"] for way in WAYS)
    same = float(np.mean(by_length.argmax(-1) == padded.argmax(-1)))
    return {
        "max_seq_length": FLAGS.glue_length,
        **figures,
        "largest_difference_of_a_probability": float(np.abs(by_length - padded).max()),
        "same_answers": same,
    }


def measure_squad(folder: str) -> dict[str, Any]:
    """Answers questions of SQuAD."""
    path = os.path.join(folder, "questions.json")
    files.write_json(path, {"version": "1.1", "data": list(_some_articles())})
    found = load_model_files(None, FLAGS.albert_config_file, FLAGS.spm_model_file)
    task = SquadTask(*found, SquadSpec("1.1", max_seq_length=FLAGS.squad_length))
    read = read_squad(path, version="1.1")
    asked = {
        way: task.open_examples(read, way, folder, pad_to_max=pad) for way, pad in WAYS.items()
    }
    figures, outputs = compare(task, lambda pad: (None, asked[list(WAYS)[pad]].source))
    by_length, padded = (predictions(asked[way].answers(outputs[way]), None) for way in WAYS)
    questions, windows = len(padded), asked["padded"].source.num_examples
    difference = np.abs(np.subtract(*(outputs[way]["start_scores"][:, 0] for way in WAYS)))
    return {
        "max_seq_length": FLAGS.squad_length,
        "questions": questions,
        "windows": windows,
        **figures,
        "largest_difference_of_a_score": float(difference.max()),
        "same_answers": sum(by_length[key] == padded[key] for key in padded) / questions,
    }


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


def measure_features(folder: str) -> dict[str, Any]:
    """Takes SQuAD's questions from text to records, and outputs to answers and scores.

    The times of one process are processor time, so that other load on the machine does not count;
    those of several workers are wall time.
    """
    seconds: dict[str, float] = {}

    def timed(
        step: str, function: Callable[[], Any], clock: Callable[[], float] = time.process_time
    ) -> Any:
        began = clock()
        result = function()
        seconds[step] = clock() - began
        return result

    spec = SquadSpec("1.1", n_best_size=TOP, max_seq_length=FLAGS.squad_length)
    tokenizer = Tokenizer.from_file(FLAGS.spm_model_file)
    questions = timed("read", lambda: read_squad(FLAGS.squad_file, version="1.1"))
    windows = timed("align and cut", lambda: make_windows(questions, tokenizer, spec.windows))
    if FLAGS.workers:
        timed(
            f"the same, {FLAGS.workers} workers",
            lambda: make_windows(questions, tokenizer, spec.windows, workers=FLAGS.workers),
            time.perf_counter,
        )
    timed(
        "records, all in all",
        lambda: build_squad_records(folder, questions, tokenizer, spec, labelled=True),
    )
    outputs = _random_outputs(windows)
    found = timed("answers from outputs", lambda: extract_answers(windows, outputs, spec))
    timed("scores", lambda: score(questions, predictions(found, None), version="1.1"))
    milliseconds = {step: 1000 * value / len(questions) for step, value in seconds.items()}
    official = OFFICIAL_MILLISECONDS / milliseconds["align and cut"]
    return {
        "questions": len(questions),
        "windows": len(windows),
        "milliseconds_per_question": {step: round(v, 4) for step, v in milliseconds.items()},
        "alignment_times_official": round(official, 1),
    }


def _random_outputs(windows: Windows) -> dict[str, np.ndarray]:
    """What a span head might give: random scores, and positions anywhere in the sequence."""
    rng = np.random.default_rng(0)
    lengths = (windows.context_start + windows.num_pieces + 1)[:, None]
    shape = (len(windows), TOP)
    return {
        "starts": rng.integers(0, lengths, shape),
        "start_scores": rng.normal(size=shape),
        "ends": rng.integers(0, lengths, shape)[:, None],
        "end_scores": rng.normal(size=shape)[:, None],
        "null_logit": rng.normal(size=len(windows)),
    }


def _print_comparison(name: str, result: dict[str, Any]) -> None:
    for what in ("training", "evaluating"):
        if what in result:
            figures = result[what]
            for clock in CLOCKS:
                rates = "  ".join(f"{figures[way][f'per_{clock}_second']:10.1f}" for way in WAYS)
                middle, low, high = figures[f"{clock}_ratio"]
                print(f"{name:6} {what:10} {clock:9} {rates}   {middle:.2f} ({low} to {high}) ×")
            if PEER in figures:
                rate = figures[PEER]["per_wall_second"]
                middle, low, high = figures["peer_ratio"]
                print(
                    f"{name:6} {what:10} {PEER} {rate:.1f}: by length is "
                    f"{middle:.2f} ({low} to {high}) times as fast"
                )
    for name in ("largest_difference_of_a_probability", "largest_difference_of_a_score"):
        if name in result:
            print(f"       {name.replace('_', ' ')}: {result[name]:.1e}", end="; ")
    print(f"the same answers: {result['same_answers']:.2%}")


def _main() -> None:
    result: dict[str, Any] = {"benchmark": "finetune", "machine": machine.describe()}
    result["model"] = FLAGS.albert_config_file
    with tempfile.TemporaryDirectory() as folder:
        if FLAGS.glue_dir:
            for name in FLAGS.glue_tasks:
                result[name] = measure_glue(name, folder)
        if FLAGS.squad_file:
            result["SQuAD"] = measure_squad(folder)
            result["squad_features"] = measure_features(folder)
    compared = [name for name in (*FLAGS.glue_tasks, "SQuAD") if name in result]
    print(f"\nexamples a second of    {'by length':>14}  {'padded':>10}   times as fast")
    for name in compared:
        _print_comparison(name, result[name])
    if "squad_features" in result:
        features = result["squad_features"]
        print(f"\n{features['questions']:,} questions, {features['windows']:,} windows")
        for step, value in features["milliseconds_per_question"].items():
            print(f"  {step:22} {value:8.4f} ms a question")
        times = features["alignment_times_official"]
        print(f"Aligning is {times:.0f} times as fast as the TF1 release.")
    print(json.dumps(result))
    if FLAGS.json:
        files.write_json(FLAGS.json, result)


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
