# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures whole commands: time up to the first steps, and memory.

  python -m benchmarks.commands --input_file=records/pretrain_128.tfrecord \\
    --configs=albert_tiny,albert_base_v2 --pythons=.venv/bin/python,.venv-current/bin/python

In turns, it runs --help, a pretraining run of --steps steps for each model, and fine-tuning the
bundled model on the demo's authors with its evaluation, with each of --pythons. Flags after `--`
go to the pretraining run, such as `-- --recompute --precision=mixed_bfloat16`. Prints wall and CPU
seconds and the peak memory of each process (median, least and most), and one line of JSON. Where
other programs share the CPU, wall times are longer but CPU times nearly the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from benchmarks.common import describe_machine, show_spread, spread

FLAGS = flags.FLAGS
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_AUTHORS = "albert_tf/sample_data"


def define_flags() -> None:
    """Defines the flags."""
    define_path("input_file", None, "Pretraining records.", required=True)
    define_path("configs", "albert_tiny,albert_base_v2", "Models to pretrain.")
    define_path("pythons", sys.executable, "Pythons of this project's environments.")
    flags.DEFINE_integer("steps", 1, "Pretraining steps; the first one also traces.", 1)
    flags.DEFINE_integer("train_batch_size", 8, "Examples of a pretraining step.", 1)
    flags.DEFINE_integer("turns", 3, "Turns; the median counts.", 1)


def commands(folder: str, more: Sequence[str] = ()) -> dict[str, list[str]]:
    """The commands by name, without the Python; `more` are flags of pretraining."""
    jobs = {"--help": ["run_pretraining.py", "--help"]}
    for number, config in enumerate(FLAGS.configs.split(",")):
        jobs[f"pretraining, {config}"] = [
            "run_pretraining.py", "--do_train", f"--input_file={FLAGS.input_file}",
            f"--albert_config_file={config}", f"--output_dir={folder}/pretrained-{number}",
            f"--num_train_steps={FLAGS.steps}", f"--train_batch_size={FLAGS.train_batch_size}",
            *more,
        ]  # fmt: skip
    jobs["fine-tuning and evaluation"] = [
        "run_classifier.py", "--do_train", "--do_eval", f"--train_file={_AUTHORS}/train.tsv",
        f"--eval_file={_AUTHORS}/dev.tsv", "--text_column=sentence", "--label_column=author",
        "--max_seq_length=80", "--num_train_epochs=1", f"--output_dir={folder}/tuned",
    ]  # fmt: skip
    return jobs


def run(python: str, command: Sequence[str]) -> dict[str, float]:
    """Runs a command; returns wall and CPU seconds and the GiB that it had at most.

    Raises:
      AlbertError: it fails; with the last line that it printed.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            [os.path.abspath(python), *command], cwd=_ROOT, stdout=output, stderr=output,
            env={**os.environ, "PYTHONPATH": _ROOT},
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            last = (output.read().splitlines() or ["nothing"])[-1]
            raise AlbertError(f"{command[0]} failed in {python}; it said: {last}")
    cpu = usage.ru_utime + usage.ru_stime
    return {"wall_seconds": wall, "cpu_seconds": cpu, "peak_gib": usage.ru_maxrss / 2**20}


def _main(*arguments: str) -> None:
    found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(FLAGS.turns):
            for number, python in enumerate(FLAGS.pythons.split(",")):
                for name, command in commands(f"{folder}/{turn}-{number}", arguments).items():
                    found[python, name].append(run(python, command))
    results = []
    print(f"{'':<44}{'wall s':>18}{'CPU s':>18}{'peak GiB':>20}")
    for (python, name), turns in found.items():
        figures = {key: spread([turn[key] for turn in turns]) for key in turns[0]}
        results.append({"python": python, "command": name, **figures})
        cells = [show_spread(values, 2) for values in figures.values()]
        print(f"{name + ', ' + python:<44}" + "".join(f"{cell:>20}" for cell in cells))
    print(json.dumps({"machine": describe_machine(), "results": results}))


if __name__ == "__main__":
    script.run(_main, define_flags, ["[FLAG…]"])
