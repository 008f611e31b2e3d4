# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the pretraining step of one model."""

from __future__ import annotations

import os
import resource
import statistics
import time

from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.io import files
from benchmarks.common import describe_machine

FLAGS = flags.FLAGS
SPEED_FILE = "speed.json"


def define_flags() -> None:
    """Flags of `speed`."""
    define_path("albert_config_file", None, "The model: a JSON file or a preset.", required=True)
    define_path("output_dir", None, f"Folder for {SPEED_FILE}.", required=True)
    flags.DEFINE_integer("seq_length", 128, "Positions of an example.", 8)
    flags.DEFINE_integer("batch_size", 16, "Examples of a step.", 1)
    flags.DEFINE_integer("turns", 10, "Steps that are timed, after one that is not.", 1)
    flags.DEFINE_enum("precision", "mixed_bfloat16", ["float32", "mixed_bfloat16"], "Compute type.")


def main() -> None:
    """Times steps on random records, LAMB included; writes seconds a step.

    `clock_seconds` is the median on the clock; `processor_seconds` what all cores spent, of which
    other programs on the machine take nothing away.
    """
    from benchmarks.random_step import RandomStep

    config = AlbertConfig.load(FLAGS.albert_config_file)
    step = RandomStep(config, FLAGS.seq_length, FLAGS.batch_size, FLAGS.precision)
    step()  # Traces and compiles.
    seconds = []
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(FLAGS.turns):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = {
        "clock_seconds": statistics.median(seconds),
        "processor_seconds": spent / FLAGS.turns,
        "seq_length": FLAGS.seq_length,
        "batch_size": FLAGS.batch_size,
        "precision": FLAGS.precision,
        "machine": describe_machine(),
    }
    files.write_json(os.path.join(FLAGS.output_dir, SPEED_FILE), found)
    print(
        f"A step takes {found['clock_seconds']:.3g} s on the clock and "
        f"{found['processor_seconds']:.3g} s of the processors."
    )
