# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What batching by length saves in fine-tuning and evaluating, and that it changes no result.

  python -m benchmarks.length_buckets --file=SST-2/train.tsv --text_column=sentence \\
    --label_column=label --albert_config_file=albert_tiny --spm_model_file=30k-clean.model

The same model, with random weights, trains and evaluates on the same texts in batches padded to a
few lengths and in batches padded to --max_seq_length, in turns. Prints a table; --json writes it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

from albert_tf import cli, files
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.text_tables import TextColumns, read_text_table
from albert_tf.optimization.optimizer import create_optimizer
from albert_tf.optimization.schedule import WarmupPolynomialDecay
from albert_tf.tasks.classification_features import label_set
from albert_tf.tasks.finetuning import load_model_files
from albert_tf.tasks.text_classification import ClassificationSpec, TextClassificationTask
from albert_tf.training.loop import Predictor, TrainLoop, distribute
from albert_tf.training.specs import InputFn, RunConfig
from albert_tf.training.strategy import make_strategy

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("file", None, "Labelled texts.", required=True)
    flags.DEFINE_string("text_column", "text", "Column of the text.")
    flags.DEFINE_string("text_pair_column", None, "Column of the second text.")
    flags.DEFINE_string("label_column", "label", "Column of the label.")
    flags.DEFINE_string("albert_config_file", None, "Model.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_integer("max_seq_length", 128, "Length to pad to.")
    flags.DEFINE_integer("batch_size", 32, "Of training and evaluation.")
    flags.DEFINE_integer("batches", 50, "Batches a turn.")
    flags.DEFINE_integer("turns", 5, "Turns; the median counts.")
    flags.DEFINE_string("precision", "mixed_bfloat16", "Or float32.")
    flags.DEFINE_string("json", None, "File to write the figures to.")


class Contestant:
    """One way of padding: endless training and repeated evaluation of the same model.

    Args:
      task: whose model it is.
      model: the model, shared with the other contestant.
      source: the texts.
      config: of the run.
      strategy: in whose scope the model was made.
    """

    def __init__(
        self,
        task: TextClassificationTask,
        model: tf.keras.Model,
        source: RecordSource,
        config: RunConfig,
        strategy: tf.distribute.Strategy,
    ) -> None:
        # At a rate of 0 both keep the same weights.
        schedule = WarmupPolynomialDecay(learning_rate=0.0, num_train_steps=1, num_warmup_steps=0)
        with strategy.scope():
            optimizer = create_optimizer("adamw", schedule, model.named_weights())
        self._source, self._strategy, self._config = source, strategy, config
        self._loop = TrainLoop(strategy, task, model, optimizer, schedule, config)
        self._predictor = Predictor(strategy, task, model, jit_compile=False)
        self._batches = iter(self._distribute(source.train_input_fn))
        self.tokens = self.positions = 0.0

    def _distribute(self, input_fn: InputFn) -> tf.distribute.DistributedDataset:
        return distribute(self._strategy, input_fn, self._config.train_batch_size)

    def train(self, steps: int) -> None:
        """Trains for some steps."""
        metrics = self._loop.run(self._batches, steps)
        self.tokens += metrics["tokens"].sum()
        self.positions += metrics["positions"].sum()

    def evaluate(self) -> np.ndarray:
        """Probabilities of all texts, in their order."""
        iterator = iter(self._distribute(self._source.eval_input_fn))
        parts = list(iter(lambda: self._predictor(iterator), None))
        order = np.argsort(np.concatenate([part["example_index"] for part in parts]))
        return np.concatenate([part["probabilities"] for part in parts])[order]


def measure() -> dict[str, Any]:
    """Trains and evaluates in both ways and returns the figures."""
    columns = TextColumns(FLAGS.text_column, FLAGS.text_pair_column, FLAGS.label_column)
    examples = read_text_table(FLAGS.file, columns)
    files_of_model = load_model_files(FLAGS.albert_config_file, FLAGS.spm_model_file, None, None)
    spec = ClassificationSpec(label_set(examples), FLAGS.max_seq_length, columns)
    task = TextClassificationTask(*files_of_model, spec)
    # As many examples as are measured, in random order: their lengths are those of the whole.
    order = np.random.default_rng(0).permutation(len(examples))
    examples = [examples[i] for i in order[: FLAGS.batches * FLAGS.batch_size]]
    config = RunConfig(
        "unused", train_batch_size=FLAGS.batch_size, precision=FLAGS.precision, learning_rate=0.0
    )
    tf.keras.mixed_precision.set_global_policy(FLAGS.precision)
    strategy = make_strategy(config)
    with strategy.scope():
        model = task.build_model()
    seconds: dict[str, dict[str, list[float]]] = {"training": {}, "evaluating": {}}
    outputs = {}
    with tempfile.TemporaryDirectory() as folder:
        contestants = {}
        for name, pad in (("by length", False), ("to the maximum", True)):
            options = {"train_seed": 1, "pad_to_max": pad}
            source = task.open_examples(examples, name, folder, **options)
            contestants[name] = Contestant(task, model, source, config, strategy)
        for turn in range(FLAGS.turns + 1):
            for name, contestant in contestants.items():
                for what in seconds:
                    began = time.perf_counter()
                    if what == "training":
                        contestant.train(FLAGS.batches)
                    else:
                        outputs[name] = contestant.evaluate()
                    if turn:  # The first one also traces and compiles.
                        seconds[what].setdefault(name, []).append(time.perf_counter() - began)
    difference = np.abs(outputs["by length"] - outputs["to the maximum"]).max()
    medians = {k: {n: statistics.median(v) for n, v in d.items()} for k, d in seconds.items()}
    return {
        "benchmark": "length_buckets",
        "examples": len(examples),
        "precision": FLAGS.precision,
        "seconds": medians,
        "padding_share": {n: 1 - c.tokens / c.positions for n, c in contestants.items()},
        "times_as_fast": {k: d["to the maximum"] / d["by length"] for k, d in medians.items()},
        "largest_difference_of_probabilities": float(difference),
    }


def _main() -> None:
    result = measure()
    for name, share in result["padding_share"].items():
        print(f"padded {name}: {share:.1%} of the positions are padding")
    for what, value in result["seconds"].items():
        times = "  ".join(f"{name} {x:.2f} s" for name, x in value.items())
        print(f"{what}: {times}  {result['times_as_fast'][what]:.2f} times as fast")
    difference = result["largest_difference_of_probabilities"]
    print(f"largest difference of a probability: {difference:.1e}")
    if FLAGS.json:
        files.write_json(FLAGS.json, result)


def main() -> None:
    """Entry point."""
    cli.run(_main, define_flags)


if __name__ == "__main__":
    main()
