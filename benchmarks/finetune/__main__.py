# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the gain from batches of similar length, and how fast SQuAD's features are built.

  python -m benchmarks.finetune --spm_model_file=30k-clean.model --albert_config_file=albert_tiny \\
    --glue_dir=glue --squad_file=dev-v1.1.json

The same model, with random weights, reads the same texts in batches padded to a few lengths and in
batches padded to the maximum length, in turns: training and evaluation on SST-2, CoLA and SQuAD.
With --peer_python, transformers trains and evaluates in the same turns, in batches grouped by
length and padded to a multiple of 8, as its Trainer can. Then each step of SQuAD is timed, from
text to records and from outputs to scores. Prints tables and one line of JSON.

Training speed is counted in tokens without padding, because the texts of each turn have other
lengths. By default, a turn trains on as many batches as are sorted together, so it has short and
long ones. Padded batches all have the maximum length, so a turn needs fewer of them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.data.pipeline import CHUNK_BATCHES, RecordSource
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tasks.base import FineTuningTask, load_model_files
from albert_tf.tasks.classification.glue_tasks import find_task
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.glue.data import read_split
from albert_tf.tasks.squad.answers import predictions
from albert_tf.tasks.squad.data import read_squad
from albert_tf.tasks.squad.features import SquadSpec
from albert_tf.tasks.squad.task import SquadTask
from benchmarks import machine
from benchmarks.finetune.peer import PeerContestant
from benchmarks.finetune.squad_features import measure_features
from benchmarks.finetune.turns import CLOCKS, PEER, UNITS, WAYS, OpenPeer, compare

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
    flags.DEFINE_integer(
        "batches", CHUNK_BATCHES, "Training batches of a turn; an eighth of them if padded.", 1
    )  # fmt: skip
    flags.DEFINE_integer("turns", 3, "Turns; the median counts.", 1)
    flags.DEFINE_enum("precision", "auto", ["auto", "float32", "mixed_bfloat16"], "Precision.")
    define_path("peer_python", None, "Python of transformers, which then takes turns too.")
    flags.DEFINE_enum("peer_mode", "eager", ["eager", "compile"], "How the peer runs its model.")
    flags.DEFINE_integer("workers", 0, "Also cut windows of SQuAD with so many processes.", 0)
    define_path("json", None, "File to write the figures to.")


def measure_glue(name: str, folder: str) -> dict[str, Any]:
    """Trains on one task of GLUE and evaluates its development set.

    Raises:
      AlbertError: the task has numbers in place of labels.
    """
    glue = find_task(name)
    if not glue.labels:
        raise AlbertError(f"--glue_tasks: {name} predicts numbers; give tasks with labels.")
    splits = [
        read_split(glue, glue.of(kind)[0], FLAGS.glue_dir).examples for kind in ("train", "dev")
    ]
    found = load_model_files(None, FLAGS.albert_config_file, FLAGS.spm_model_file)
    task = TextClassificationTask(*found, ClassificationSpec(glue.labels, FLAGS.glue_length))

    def open_sources(pad: bool) -> tuple[RecordSource, RecordSource]:
        return (
            task.open_examples(splits[0], "train", folder, train_seed=1, pad_to_max=pad).source,
            task.open_examples(splits[1], "dev", folder, pad_to_max=pad).source,
        )

    figures, outputs = compare(task, open_sources, _peer_of(task, folder))
    by_length, padded = (outputs[way]["probabilities"] for way in WAYS)
    same = float(np.mean(by_length.argmax(-1) == padded.argmax(-1)))
    return {
        "max_seq_length": FLAGS.glue_length,
        **figures,
        "largest_difference_of_a_probability": float(np.abs(by_length - padded).max()),
        "same_answers": same,
    }


def measure_squad(folder: str) -> dict[str, Any]:
    """Trains on questions of SQuAD and answers them."""
    path = os.path.join(folder, "questions.json")
    files.write_json(path, {"version": "1.1", "data": list(_some_articles())})
    found = load_model_files(None, FLAGS.albert_config_file, FLAGS.spm_model_file)
    task = SquadTask(*found, SquadSpec("1.1", max_seq_length=FLAGS.squad_length))
    read = read_squad(path, version="1.1")
    learned = read_squad(FLAGS.squad_file, version="1.1")
    asked = {
        way: task.open_examples(read, way, folder, pad_to_max=pad) for way, pad in WAYS.items()
    }

    def open_sources(pad: bool) -> tuple[RecordSource, RecordSource]:
        train = task.open_examples(learned, "train", folder, train_seed=1, pad_to_max=pad).source
        return train, asked[list(WAYS)[pad]].source

    figures, outputs = compare(task, open_sources, _peer_of(task, folder))
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


def _peer_of(task: FineTuningTask, folder: str) -> OpenPeer | None:
    """Returns what starts transformers on the task, unless there is no --peer_python."""

    def open_peer(policy: str, training: RecordSource, held_out: RecordSource) -> PeerContestant:
        return PeerContestant(task, policy, training, held_out, folder)

    return open_peer if FLAGS.peer_python else None


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


def _print_comparison(name: str, result: dict[str, Any]) -> None:
    for what, unit in UNITS.items():
        figures = result[what]
        for clock in CLOCKS:
            rates = "  ".join(f"{figures[way][f'per_{clock}_second']:10.1f}" for way in WAYS)
            middle, low, high = figures[f"{clock}_ratio"]
            label = f"{name:6} {unit} a {clock} second"
            print(f"{label:34} {rates}   {middle:.2f} ({low} to {high}) ×")
        if PEER in figures:
            rate = figures[PEER]["per_wall_second"]
            middle, low, high = figures["peer_ratio"]
            print(
                f"{name:6} {unit} a wall second of {PEER}: {rate:.1f}; by length is "
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
    print(f"\n{'':34} {'by length':>10}  {'padded':>10}   times as fast")
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
