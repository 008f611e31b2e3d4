# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast pretraining records are built, by step and by number of workers.

  python -m benchmarks.build_records --input_file=text.txt --spm_model_file=30k-clean.model

Prints tables and one line of JSON. Rates are per second of CPU time of one process, so that other
programs on the machine affect them little; values are medians of several turns. They are compared
with the TF1 release's builder (google-research/albert create_pretraining_data.py under TensorFlow
1.15, including tokenization), whose rates were measured once on one core of a similar machine and
are constants in this file. SentencePiece alone runs on the same text in the same turns, to show how
fast the machine was.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.data import records
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.tokenization.normalization import normalize
from benchmarks import machine
from data_prep import encoding, local_runner, pretraining_build, pretraining_shards, spill
from data_prep.pretraining_options import PretrainingOptions

#: Instances a second of the official builder by sequence length (77 and 20 predictions).
OFFICIAL_INSTANCES = {512: 86.0, 128: 311.0}
#: Megabytes of text a second and pass of the official builder; the better of its two figures.
OFFICIAL_MEGABYTES = 0.22
CASES = [(512, 1), (512, 10), (128, 1), (128, 10)]
STEPS = ("load", "read", "tokenize", "spill", "cut", "assemble", "mask", "encode", "write", "check")

FLAGS = flags.FLAGS

_seconds: dict[str, float] = defaultdict(float)
_inside = [0.0]


def define_flags() -> None:
    """Defines the flags."""
    define_path("input_file", None, "Sentence file, one sentence per line.", required=True)
    define_path("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_float("megabytes", 6.0, "Megabytes of the text to use.", lower_bound=0.1)
    flags.DEFINE_integer("turns", 5, "Turns through all cases; 0: none.", lower_bound=0)
    flags.DEFINE_multi_integer("workers", [1, 2], "Numbers of workers to compare.", lower_bound=1)
    flags.DEFINE_integer("worker_turns", 3, "Turns of that comparison; 0: none.", lower_bound=0)


def _timed(step: str, function: Callable) -> Callable:
    """Adds the processor time in `function`, less that of timed functions it calls, to a step."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _inside.append(0.0)
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            spent = time.process_time() - began
            _seconds[step] += spent - _inside.pop()
            _inside[-1] += spent

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
    source = pretraining_build.TokenizerSource
    source.load = _timed("load", source.load)
    local_runner.read_blocks = _timed_iterator("read", local_runner.read_blocks)
    local_runner.tokenize_block = _timed("tokenize", local_runner.tokenize_block)
    for method in ("add", "finish"):
        writer = local_runner.SpillWriter
        setattr(writer, method, _timed("spill", getattr(writer, method)))
    spill.read_bucket = _timed("spill", spill.read_bucket)
    spill.Bucket.load = _timed("spill", spill.Bucket.load)
    spill.Bucket.save = _timed("spill", spill.Bucket.save)
    pretraining_shards.create_instances = _timed("cut", pretraining_shards.create_instances)
    encoding.assemble = _timed("assemble", encoding.assemble)
    encoding.mask = _timed("mask", encoding.mask)
    records.encode_examples = _timed("encode", records.encode_examples)
    records.write_passes = _timed("write", records.write_passes)
    files.sha256 = _timed("check", files.sha256)


def build(text: str, length: int, dupe_factor: int, workers: int = 1) -> dict[str, float]:
    """Builds records of `text` once; their number, and the seconds it took."""
    source = pretraining_build.TokenizerSource(FLAGS.spm_model_file)
    options = PretrainingOptions(max_seq_length=length, dupe_factor=dupe_factor)
    with tempfile.TemporaryDirectory() as folder:
        output = pretraining_build.Output(folder)
        children, wall, own = _children(), time.perf_counter(), time.process_time()
        manifest = pretraining_build.build_pretraining_data(
            [text],
            source,
            output,
            options,
            functools.partial(local_runner.LocalRunner, num_workers=workers),
        )
        wall, own = time.perf_counter() - wall, time.process_time() - own
    return {
        "instances": manifest.num_examples,
        "wall_seconds": wall,
        "cpu_seconds": own,
        "worker_cpu_seconds": _children() - children,
    }


def _children() -> float:
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sentencepiece_seconds(text: str) -> float:
    """Processor time of SentencePiece alone on the normalised lines of `text`."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=FLAGS.spm_model_file)
    lines = [normalize(line, True, True) for line in read_lines(text)]
    began = time.process_time()
    processor.EncodeAsIds(lines, num_threads=1)
    return time.process_time() - began


def measure_cases(text: str) -> list[dict[str, Any]]:
    """Builds every case once a turn; the figures of each."""
    if not FLAGS.turns:
        return []
    install_timers()
    turns: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for turn in range(FLAGS.turns + 1):
        for case in CASES:
            _seconds.clear()
            alone = sentencepiece_seconds(text)
            result = build(text, *case)
            steps = {step: _seconds[step] for step in STEPS}
            steps["other"] = result["cpu_seconds"] - sum(steps.values())
            if turn:  # The first one also imports.
                turns[case].append({**result, "steps": steps, "alone": alone})
    return [_summary(os.path.getsize(text) / 1e6, case, turns[case]) for case in CASES]


def _summary(megabytes: float, case: tuple[int, int], runs: list[dict[str, Any]]) -> dict[str, Any]:
    length, passes = case
    cpu = [run["cpu_seconds"] for run in runs]
    median = statistics.median(cpu)
    instances = runs[0]["instances"]
    return {
        "max_seq_length": length,
        "dupe_factor": passes,
        "instances": instances,
        "cpu_seconds": median,
        "cpu_seconds_spread": [min(cpu), max(cpu)],
        "instances_per_second": instances / median,
        "text_megabytes_per_second": megabytes / median,
        "times_official_by_instances": instances / median / OFFICIAL_INSTANCES[length],
        "times_official_by_text": megabytes * passes / median / OFFICIAL_MEGABYTES,
        "sentencepiece_megabytes_per_second": megabytes
        / statistics.median(run["alone"] for run in runs),
        "times_sentencepiece": statistics.median(run["cpu_seconds"] / run["alone"] for run in runs),
        "share_of_time": {
            step: statistics.median(run["steps"][step] / run["cpu_seconds"] for run in runs)
            for step in (*STEPS, "other")
        },
    }


def measure_workers(text: str) -> list[dict[str, Any]]:
    """Builds records of length 512 in 10 passes with every number of workers, in turns."""
    runs: dict[int, list[dict[str, float]]] = defaultdict(list)
    for _ in range(FLAGS.worker_turns):
        for workers in FLAGS.workers:
            runs[workers].append(build(text, 512, 10, workers))
    return [
        {
            "workers": workers,
            **{name: statistics.median(run[name] for run in some) for name in some[0]},
            "wall_seconds_spread": [f(run["wall_seconds"] for run in some) for f in (min, max)],
        }
        for workers, some in runs.items()
    ]


def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        limit = FLAGS.megabytes * 1e6
        size = 0
        with open(text, "w", encoding="utf-8") as f:
            for path in files.expand_globs(FLAGS.input_file):
                for line in read_lines(path):
                    size += f.write(line + "\n")
                    if size >= limit:
                        break
        # Without timers, which the workers of other processes would not have.
        workers = measure_workers(text)
        cases = measure_cases(text)
    print("length passes  instances/s   MB/s  × official (instances, text)  × SentencePiece alone")
    for case in cases:
        print(
            f"{case['max_seq_length']:6d} {case['dupe_factor']:6d} "
            f"{case['instances_per_second']:12.0f} {case['text_megabytes_per_second']:6.2f} "
            f"{case['times_official_by_instances']:12.1f} {case['times_official_by_text']:12.1f} "
            f"{case['times_sentencepiece']:21.2f}"
        )
    print(f"\n{'share of the time in':21s}" + "".join(f"{step:>9s}" for step in (*STEPS, "other")))
    for case in cases:
        name = f"{case['max_seq_length']}, {case['dupe_factor']} passes"
        print(f"{name:21s}" + "".join(f"{x:9.1%}" for x in case["share_of_time"].values()))
    if workers:
        print("\nworkers  wall s  processor s: of this process, of the workers")
    for row in workers:
        print(
            f"{row['workers']:7d} {row['wall_seconds']:7.2f} {row['cpu_seconds']:28.2f} "
            f"{row['worker_cpu_seconds']:16.2f}"
        )
    result = {"benchmark": "build_records", "machine": machine.describe()}
    print(json.dumps({**result, "cases": cases, "workers": workers}))


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
