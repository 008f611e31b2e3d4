# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of the same jobs in several Python environments, in turns.

  python -m benchmarks.environments --pythons=.venv/bin/python,.venv-current/bin/python \\
    --input_file=text.txt --data_dir=glue

The jobs are whole commands: --help, a pretraining run of one step, building records, fine-tuning
and evaluation. Each environment has this project's requirements installed. Prints wall and CPU
seconds and their ratios to the first environment in the same turn, as medians with minimum and
maximum, and one line of JSON. For the training step alone, use benchmarks.train_step --peer=ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.pretrained import DEFAULT
from albert_tf.pretrained.locate import locate
from benchmarks import machine
from benchmarks.path_lists import define_path_list
from benchmarks.processes import run_timed
from benchmarks.train_step import shown, spread

FLAGS = flags.FLAGS

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_VERSION = "import platform; from importlib.metadata import version; "
_VERSION += "print('Python', platform.python_version() + ', TensorFlow', version('tensorflow'))"


def define_flags() -> None:
    """Defines the flags."""
    define_path_list("pythons", None, "The environments' interpreters.", required=True)
    define_path("input_file", None, "Sentence file to build records from.", required=True)
    define_path("data_dir", None, "Folder of GLUE, with SST-2/ in it.", required=True)
    flags.DEFINE_integer("train_step", 100, "Steps of the fine-tuning.", 1)
    flags.DEFINE_integer("turns", 3, "Turns; the median counts.", 1)


def jobs(folder: str) -> dict[str, Sequence[str]]:
    """The commands by name; a job reads what the jobs above it have written to the folder."""
    vocabulary = f"--spm_model_file={locate(DEFAULT)}/spiece.model"
    records, tuned = f"{folder}/records", f"{folder}/tuned"
    task = ("run_classifier.py", "--task_name=SST-2", f"--data_dir={FLAGS.data_dir}")
    return {
        "--help": ("run_pretraining.py", "--help"),
        "building records": (
            "data_prep/create_pretraining_data.py", f"--input_file={FLAGS.input_file}",
            f"--output_file={records}/data.tfrecord", vocabulary, "--max_seq_length=128",
        ),
        "pretraining, one step": (
            "run_pretraining.py", f"--input_file={records}/data.tfrecord", "--do_train",
            "--albert_config_file=albert_tiny", "--num_train_steps=1", "--train_batch_size=8",
            f"--output_dir={folder}/pretrained",
        ),
        f"fine-tuning, {FLAGS.train_step} steps": (
            *task, "--do_train", f"--init_checkpoint={DEFAULT}", f"--output_dir={tuned}",
            f"--train_step={FLAGS.train_step}", "--train_batch_size=32",
        ),
        "evaluating": (*task, "--do_eval", f"--output_dir={tuned}"),
    }  # fmt: skip


def run(python: str, command: Sequence[str]) -> tuple[float, float]:
    """Runs a command in an environment; returns its wall and processor seconds.

    Raises:
      AlbertError: it fails; with the last line that it printed.
    """
    done, seconds = run_timed(
        [os.path.abspath(python), *command],
        cwd=_ROOT, env={**os.environ, "PYTHONPATH": _ROOT}, capture_output=True, text=True,
    )  # fmt: skip
    # absl exits with 1 after --help.
    if done.returncode and "--help" not in command:
        last = (done.stderr.splitlines() or ["nothing"])[-1]
        raise AlbertError(f"{command[0]} failed in {python}; it said: {last}")
    return seconds


def measure(folder: str) -> dict[str, list[list[tuple[float, float]]]]:
    """Wall and processor seconds of every job: by job, environment and turn."""
    found: dict[str, list[list[tuple[float, float]]]] = {}
    for turn in range(FLAGS.turns):
        for number, python in enumerate(FLAGS.pythons):
            own = os.path.join(folder, f"{turn}-{number}")
            for name, command in jobs(own).items():
                times = found.setdefault(name, [[] for _ in FLAGS.pythons])
                times[number].append(run(python, command))
    return found


def _main() -> None:
    versions = [
        subprocess.run([python, "-c", _VERSION], capture_output=True, text=True).stdout.strip()
        for python in FLAGS.pythons
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = measure(folder)
    for number, version in enumerate(versions):
        print(f"{chr(ord('A') + number)}: {version}")
    heads = ("wall seconds", "processor seconds", "wall / A", "processor / A")
    print("".join(f"{head:>20}" for head in heads))
    results = {}
    for name, times in found.items():
        for number, turns in enumerate(times):
            seconds, ratios = (
                {
                    clock: spread([turn[i] / base[i] for turn, base in zip(turns, bases)])
                    for i, clock in enumerate(("wall", "processor"))
                }
                for bases in ([(1.0, 1.0)] * len(turns), times[0])
            )
            results[f"{name}, {versions[number]}"] = {"seconds": seconds, "ratio": ratios}
            cells = [shown(seconds[clock], 1) for clock in seconds]
            cells += [shown(ratios[clock], 2) if number else "" for clock in ratios]
            print(f"{chr(ord('A') + number)} {name}")
            print("".join(f"{cell:>20}" for cell in cells))
    print(json.dumps({"benchmark": "environments", "machine": machine.describe(), **results}))


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
