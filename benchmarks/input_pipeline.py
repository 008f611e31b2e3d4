# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast records are read for training, by stage, and whether training waits for them.

  python -m benchmarks.input_pipeline --records=records128 --records=records512 \\
    --albert_config_file=albert_base_v2

Each --records is a folder written by data_prep/create_pretraining_data.py. The examples per second
of the training input, in its deterministic order, are compared with the TF1 release's method (parse
records one by one, shuffle in a buffer, batch) and with the stages of the input alone. With a
model, it also runs some training steps and measures the share of their time spent waiting for
input. The methods take turns; values are medians. It also counts the bytes that each machine reads
for one epoch if 1, 2, 4 or 8 machines have an input pipeline each (on Linux, as counted by the
kernel). Prints tables and one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import PathParser, define_path
from albert_tf.config import AlbertConfig
from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.records import BLOCK_EXAMPLES
from albert_tf.data.training_order import SHUFFLED_BLOCKS, TrainingOrder
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask, model_config
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import RunConfig, TrainSpec
from benchmarks import machine

FLAGS = flags.FLAGS

#: Machines with an input pipeline each.
PIPELINES = (1, 2, 4, 8)

MakeDataset = Callable[[], tf.data.Dataset]


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_multi(
        PathParser(),
        flags.ArgumentSerializer(),
        "records",
        None,
        "Folder with records.",
        required=True,
    )
    flags.DEFINE_integer("batch_size", 512, "Examples in a batch that is read.", 1)
    flags.DEFINE_float("seconds", 2.0, "Seconds to read in a turn, about.", 0.1)
    flags.DEFINE_integer("turns", 5, "Turns.", 1)
    define_path("albert_config_file", None, "Model to train, e.g. albert_tiny.")
    flags.DEFINE_integer("train_batch_size", 16, "Examples in a training step.", 1)
    flags.DEFINE_integer("train_steps", 30, "Steps to train on each of the records.", 1)
    flags.DEFINE_string("precision", "auto", "Of training: float32, mixed_bfloat16 or auto.")


def ways_to_read(source: RecordSource) -> dict[str, MakeDataset]:
    """The training input, what it is compared with, and its parts."""
    size = FLAGS.batch_size
    one_batch = next(iter(tf.data.TFRecordDataset(source.files).batch(size)))

    def read() -> tf.data.Dataset:
        paths = tf.data.Dataset.from_tensor_slices(source.files)
        return paths.interleave(
            lambda path: tf.data.TFRecordDataset(path, buffer_size=1 << 20), cycle_length=16
        ).repeat()

    def parse_then_batch() -> tf.data.Dataset:
        wanted = {
            name: tf.io.FixedLenFeature(spec.shape, tf.as_dtype(spec.dtype))
            for name, spec in source.features.items()
        }

        def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
            parsed = tf.io.parse_single_example(serialized, wanted)
            return {
                k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in parsed.items()
            }

        # A buffer of parsed examples as large as ours of serialized ones would not fit in memory.
        shuffled = read().shuffle(BLOCK_EXAMPLES, seed=1)
        return shuffled.map(parse, tf.data.AUTOTUNE).batch(size).prefetch(tf.data.AUTOTUNE)

    def parse() -> tf.data.Dataset:
        repeated = tf.data.Dataset.from_tensors(one_batch).repeat()
        return repeated.map(lambda batch: records.parse_batch(batch, source.features))

    return {
        "training input": lambda: source.train_input_fn(InputContext(size)),
        "parse, then batch": parse_then_batch,
        "reading alone": lambda: read().batch(size),
        "reading and shuffling": lambda: TrainingOrder(source.blocks, size, 1).batches(0, size),
        "parsing alone, one core": parse,
    }


def rate(dataset: tf.data.Dataset) -> tuple[float, float]:
    """Examples a second, and a second of processor time, of a few seconds' reading."""
    batches = iter(dataset)
    # The first window has to be read whole before the first batch comes.
    for _ in range(4):
        next(batches)
    count, began, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < FLAGS.seconds:
        next(batches)
        count += FLAGS.batch_size
    return count / (time.perf_counter() - began), count / (time.process_time() - used)


def bytes_read(source: RecordSource, pipelines: int) -> dict[str, float]:
    """Bytes that the pipelines read for one epoch; the mean of them and the most."""
    steps = source.num_examples // FLAGS.batch_size
    counts = []
    for index in range(pipelines):
        before = _read_so_far()
        context = InputContext(FLAGS.batch_size, 0, pipelines, index)
        for _ in source.train_input_fn(context).take(steps):
            pass
        counts.append(_read_so_far() - before)
    return {"mean": statistics.mean(counts), "most": max(counts)}


def _read_so_far() -> int:
    """What the system calls of this process have read, from the page cache too."""
    with open("/proc/self/io", encoding="ascii") as f:
        counts = dict(line.split(": ") for line in f)
    return int(counts["rchar"])


def same_order_twice(source: RecordSource) -> bool:
    """Whether two readers give the same examples in the same order, over two buffers."""
    batches = 2 * SHUFFLED_BLOCKS * BLOCK_EXAMPLES // FLAGS.batch_size
    readers = (source.train_input_fn(InputContext(FLAGS.batch_size)) for _ in range(2))
    pairs = tf.data.Dataset.zip(tuple(reader.take(batches) for reader in readers))
    name = "masked_lm_ids"
    return all(bool(tf.reduce_all(a[name] == b[name])) for a, b in pairs)


def waiting(config: AlbertConfig, folder: str) -> dict[str, float]:
    """Trains some steps on the records; the last log entry's rates and share of waiting."""
    source = open_records(folder, config)
    with tempfile.TemporaryDirectory() as output:
        run_config = RunConfig(
            output,
            train_batch_size=FLAGS.train_batch_size,
            precision=FLAGS.precision,
            log_every_steps=FLAGS.train_steps,
        )
        estimator = Estimator(PretrainingTask(config, source), run_config)
        estimator.train(TrainSpec(source.train_input_fn, FLAGS.train_steps))
        lines = files.read_text(os.path.join(output, "metrics.jsonl")).splitlines()
    return {k: json.loads(lines[-1])[k] for k in ("examples_per_second", "input_wait_share")}


def measure(folder: str) -> dict[str, Any]:
    """All figures of one folder of records."""
    config = model_config(FLAGS.albert_config_file or "albert_base_v2", folder)
    source = open_records(folder, config)
    if source.masking:
        raise AlbertError(
            f"{folder} holds compact records, which the TF1 release's method cannot read; build "
            "them without --record_format=compact."
        )
    ways = ways_to_read(source)
    rates: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(FLAGS.turns):
        for name, make in ways.items():
            rates[name].append(rate(make()))
    result = {
        "records": folder,
        "max_seq_length": source.features["input_ids"].shape[0],
        "bytes_per_record": sum(s.bytes for s in Manifest.load(folder).shards)
        / source.num_examples,
        "batch_size": FLAGS.batch_size,
        "same_order_twice": same_order_twice(source),
        "examples_per_second": {k: _spread([wall for wall, _ in v]) for k, v in rates.items()},
        "examples_per_processor_second": {k: _spread([c for _, c in v]) for k, v in rates.items()},
    }
    result["bytes_read_by_pipelines"] = {
        n: bytes_read(source, n) for n in PIPELINES if FLAGS.batch_size % n == 0
    }
    if FLAGS.albert_config_file:
        result["training"] = {"model": FLAGS.albert_config_file, **waiting(config, folder)}
    return result


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def show(result: dict[str, Any]) -> None:
    """Prints the figures of one folder of records."""
    order = "the same" if result["same_order_twice"] else "NOT the same"
    print(f"\nlength {result['max_seq_length']}; two readers give {order} order")
    print(f"{'examples':26s}{'per second':>12s}{'(least … most)':>22s}{'per processor s':>17s}")
    for name, wall in result["examples_per_second"].items():
        spread = f"({wall['least']:,.0f} … {wall['most']:,.0f})"
        processor = result["examples_per_processor_second"][name]["median"]
        print(f"{name:26s}{wall['median']:12,.0f}{spread:>22s}{processor:17,.0f}")
    alone = result["bytes_read_by_pipelines"][1]["mean"]
    for pipelines, count in result["bytes_read_by_pipelines"].items():
        print(
            f"{pipelines} machines: {count['mean'] / 1e6:.1f} MB each, at most "
            f"{count['most'] / 1e6:.1f} MB; {count['mean'] / alone:.1%} of what one alone reads"
        )
    if "training" in result:
        training = result["training"]
        print(
            f"{training['model']}, steps of {FLAGS.train_batch_size}: "
            f"{training['examples_per_second']:.1f} examples/s, waiting for input "
            f"{training['input_wait_share']:.3%} of the time"
        )


def _main() -> None:
    results = []
    for folder in FLAGS.records:
        results.append(measure(folder))
        show(results[-1])
    described = {"benchmark": "input_pipeline", "machine": machine.describe()}
    print(json.dumps({**described, "results": results}))


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
