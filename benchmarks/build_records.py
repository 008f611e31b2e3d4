# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How fast pretraining records are built, and where the time goes; one process.

  python -m benchmarks.build_records --input_file=text.txt --spm_model_file=30k-clean.model

Prints a table and one line of JSON. Rates are per second of processor time of the one process, so
that other load on the machine does not count. They are compared with the TF1 release's builder
(google-research/albert create_pretraining_data.py under TensorFlow 1.15, tokenization included),
whose rates were measured once, on one core of a similar machine, and are constants here.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from absl import flags

from albert_tf import cli, files
from albert_tf.text_files import read_lines
from data_prep import pretraining_build, pretraining_shards
from data_prep.pretraining_options import PretrainingOptions

#: Instances a second of the official builder by sequence length (77 and 20 predictions).
OFFICIAL_INSTANCES = {512: 86.0, 128: 311.0}
#: Megabytes of text a second and pass of the official builder; the better of its two figures.
OFFICIAL_MEGABYTES = 0.22
CASES = [(512, 1), (512, 10), (128, 1), (128, 10)]
STEPS = ("read", "tokenize", "spill", "cut", "assemble", "mask", "encode", "write")

_seconds: dict[str, float] = defaultdict(float)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("input_file", None, "Sentence file, one sentence a line.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_float("megabytes", 6.0, "Megabytes of the text to use.", lower_bound=0.1)


def _timed(step: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            _seconds[step] += time.process_time() - began

    return wrapper


def _timed_iterator(step: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Iterator:
        iterator = iter(function(*args, **kwargs))
        advance = _timed(step, lambda: next(iterator, None))
        while (item := advance()) is not None:
            yield item

    return wrapper


def install_timers() -> None:
    """Puts a clock around the builder's steps."""
    pretraining_build.read_blocks = _timed_iterator("read", pretraining_build.read_blocks)
    pretraining_build.tokenize_block = _timed("tokenize", pretraining_build.tokenize_block)
    for method in ("add", "finish"):
        writer = pretraining_build.SpillWriter
        setattr(writer, method, _timed("spill", getattr(writer, method)))
    shards = pretraining_shards
    shards.read_bucket = _timed("spill", shards.read_bucket)
    shards.create_instances = _timed("cut", shards.create_instances)
    shards.assemble = _timed("assemble", shards.assemble)
    shards.mask = _timed("mask", shards.mask)
    shards.records.encode_examples = _timed("encode", shards.records.encode_examples)


def measure(text: str, model: str, length: int, dupe_factor: int) -> dict[str, Any]:
    """Builds records of `text` once and returns the figures."""
    _seconds.clear()
    source = pretraining_build.TokenizerSource(model)
    with tempfile.TemporaryDirectory() as folder:
        output = pretraining_build.Output(folder)
        options = PretrainingOptions(max_seq_length=length, dupe_factor=dupe_factor)
        wall, began = time.perf_counter(), time.process_time()
        manifest = pretraining_build.build_pretraining_data([text], source, output, options)
        total, wall = time.process_time() - began, time.perf_counter() - wall
    _seconds["write"] = total - sum(_seconds.values())
    instances = manifest.num_examples / total
    megabytes = os.path.getsize(text) / 1e6 * dupe_factor / total
    return {
        "max_seq_length": length,
        "dupe_factor": dupe_factor,
        "instances": manifest.num_examples,
        "cpu_seconds": round(total, 3),
        "wall_seconds": round(wall, 3),
        "instances_per_second": round(instances, 1),
        "text_megabytes_per_second": round(megabytes / dupe_factor, 3),
        "instances_times_official": round(instances / OFFICIAL_INSTANCES[length], 1),
        "text_times_official": round(megabytes / OFFICIAL_MEGABYTES, 1),
        "share_of_time": {step: round(_seconds[step] / total, 3) for step in STEPS},
    }


def _main() -> None:
    install_timers()
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        limit = flags.FLAGS.megabytes * 1e6
        size = 0
        with open(text, "w", encoding="utf-8") as f:
            for path in files.expand_globs(flags.FLAGS.input_file):
                for line in read_lines(path):
                    size += f.write(line + "\n")
                    if size >= limit:
                        break
        measure(text, flags.FLAGS.spm_model_file, 128, 1)
        results = [measure(text, flags.FLAGS.spm_model_file, *case) for case in CASES]
    print("length passes  instances/s   MB/s  × official (instances, text)   share of the time")
    for result in results:
        shares = "  ".join(f"{step} {share:.0%}" for step, share in result["share_of_time"].items())
        print(
            f"{result['max_seq_length']:6d} {result['dupe_factor']:6d} "
            f"{result['instances_per_second']:12.0f} {result['text_megabytes_per_second']:6.2f} "
            f"{result['instances_times_official']:12.1f} {result['text_times_official']:12.1f}"
            f"         {shares}"
        )
    print(json.dumps({"benchmark": "build_records", "results": results}))


def main() -> None:
    """Entry point."""
    cli.run(_main, define_flags)


if __name__ == "__main__":
    main()
