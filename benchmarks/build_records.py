# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast pretraining records are built, and with several workers.

  python -m benchmarks.build_records --input_file=text.txt --spm_model_file=30k-clean.model

Rates are per second of CPU time of one process, so that other programs on the machine affect them
little; values are medians of several turns. They are compared with the TF1 release's builder
(google-research/albert create_pretraining_data.py under TensorFlow 1.15, tokenization included),
whose rates were measured once on one core of a similar machine and are constants in this file.
SentencePiece alone runs on the same text in the same turns, to show how fast the machine was.
Prints tables and one line of JSON.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import statistics
import tempfile
import time
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.data_prep import pretraining_build
from albert_tf.data_prep.local_runner import LocalRunner
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.tokenizer import Tokenizer
from benchmarks.common import describe_machine, show_spread, spread

#: Instances a second of the official builder by sequence length (77 and 20 predictions).
OFFICIAL_INSTANCES = {512: 86.0, 128: 311.0}
#: Megabytes of text a second and pass of the official builder; the better of its two figures.
OFFICIAL_MEGABYTES = 0.22
CASES = [(512, 1), (512, 10), (128, 1), (128, 10)]

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    define_path("input_file", None, "Sentence file, one sentence per line.", required=True)
    define_path("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_float("megabytes", 6.0, "Megabytes of the text to use.", lower_bound=0.1)
    flags.DEFINE_integer("turns", 5, "Turns through all cases; 0: none.", lower_bound=0)
    flags.DEFINE_multi_integer("workers", [1, 2], "Numbers of workers to compare.", lower_bound=1)
    flags.DEFINE_integer("worker_turns", 3, "Turns of that comparison; 0: none.", lower_bound=0)


def build(text: str, length: int, dupe_factor: int, workers: int = 1) -> dict[str, float]:
    """Builds records of `text` once; their number, and the seconds it took."""
    source = Tokenizer.from_file(FLAGS.spm_model_file)
    options = PretrainingOptions(max_seq_length=length, dupe_factor=dupe_factor)
    runner = functools.partial(LocalRunner, num_workers=workers)
    with tempfile.TemporaryDirectory() as folder:
        children, wall, own = _children(), time.perf_counter(), time.process_time()
        manifest = pretraining_build.build_pretraining_data([text], source, folder, options, runner)
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
    """Builds every case once a turn; prints and returns the figures of each."""
    turns: dict[tuple[int, int], list[tuple[dict[str, float], float]]] = {c: [] for c in CASES}
    for turn in range(FLAGS.turns + 1 if FLAGS.turns else 0):
        for case, runs in turns.items():
            alone = sentencepiece_seconds(text)
            result = build(text, *case)
            if turn:  # The first one also imports.
                runs.append((result, alone))
    megabytes, cases = os.path.getsize(text) / 1e6, []
    print("length passes  instances/s   MB/s  × official (instances, text)  × SentencePiece alone")
    for (length, passes), runs in turns.items() if FLAGS.turns else ():
        seconds = spread([result["cpu_seconds"] for result, _ in runs])
        rate = runs[0][0]["instances"] / seconds["median"]
        text_rate = megabytes / seconds["median"]
        times = statistics.median(result["cpu_seconds"] / alone for result, alone in runs)
        found = {
            "instances_per_second": rate,
            "text_megabytes_per_second": text_rate,
            "times_official_by_instances": rate / OFFICIAL_INSTANCES[length],
            "times_official_by_text": text_rate * passes / OFFICIAL_MEGABYTES,
            "times_sentencepiece": times,
        }
        case = {"max_seq_length": length, "dupe_factor": passes, "cpu_seconds": seconds}
        cases.append({**case, **found})
        cells = (f"{value:{width}}" for value, width in zip(
            found.values(), ("12.0f", "6.2f", "12.1f", "12.1f", "21.2f")))  # fmt: skip
        print(f"{length:6d} {passes:6d} {' '.join(cells)}  CPU s {show_spread(seconds, 2)}")
    return cases


def measure_workers(text: str) -> list[dict[str, Any]]:
    """Builds records of length 512 in 10 passes with every number of workers, in turns."""
    runs: dict[int, list[dict[str, float]]] = {workers: [] for workers in FLAGS.workers}
    for _ in range(FLAGS.worker_turns):
        for workers, found in runs.items():
            found.append(build(text, 512, 10, workers))
    rows = []
    for workers, found in runs.items() if FLAGS.worker_turns else ():
        row = {name: spread([run[name] for run in found]) for name in found[0]}
        rows.append({"workers": workers, **row})
        shown = ", ".join(f"{name} {show_spread(row[name], 2)}" for name in row)
        print(f"{workers} workers: {shown}")
    return rows


def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        size = 0
        with open(text, "w", encoding="utf-8") as f:
            for path in files.expand_globs(FLAGS.input_file):
                for line in read_lines(path):
                    if size < FLAGS.megabytes * 1e6:
                        size += f.write(line + "\n")
        workers = measure_workers(text)
        cases = measure_cases(text)
    print(json.dumps({"machine": describe_machine(), "cases": cases, "workers": workers}))


if __name__ == "__main__":
    script.run(_main, define_flags)
