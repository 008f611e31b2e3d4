# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the time from the command to the first step, by phase.

  python -m benchmarks.startup --spm_model_file=30k-clean.model \\
    --input_file=records/pretrain_128.tfrecord --albert_config_files=albert_tiny,albert_base_v2

Runs the scripts in their own processes, in turns: --help, a pretraining run and a fine-tuning run
up to their second step, and an evaluation up to its second batch. Prints a table of wall and CPU
seconds (medians) and one line of JSON. If other programs share the CPU, wall times are longer, but
CPU times nearly the same.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path, define_paths
from albert_tf.config import AlbertConfig
from benchmarks import machine
from benchmarks.path_lists import define_path_list
from benchmarks.processes import run_timed

#: Phases in the order of the table.
PHASES = (
    "python", "import TensorFlow", "import albert_tf", "data and the rest", "model", "optimizer",
    "load weights", "input", "trace", "first step", "second step",
)  # fmt: skip
SCRIPTS = ("run_pretraining", "run_classifier", "run_squad", "run_race")
WORDS = ("a", "slow", "but", "touching", "film", "about", "two", "brothers", "and", "their", "farm")

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    define_path("spm_model_file", None, "SentencePiece model.", required=True)
    define_paths("input_file", None, "Pretraining records.", required=True)
    define_path_list("albert_config_files", ["albert_tiny", "albert_base_v2"], "Models.")
    flags.DEFINE_integer("batch_size", 8, "Of all steps.", 1)
    flags.DEFINE_string("precision", "auto", "See the scripts.")
    flags.DEFINE_integer("turns", 3, "Turns; the median counts.", 1)


def run_help(script: str) -> dict[str, list[float]]:
    """Wall and processor seconds of a script's --help."""
    # absl exits with 1 after --help.
    command = [sys.executable, f"{script}.py", "--help"]
    return {"python": [*run_timed(command, stdout=subprocess.DEVNULL)[1]]}


def run_script(folder: str, script: str, *arguments: str) -> dict:
    """Runs a script up to its second step; gives the report of benchmarks.startup_phases."""
    report = os.path.join(folder, "report.json")
    command = [sys.executable, "-m", "benchmarks.startup_phases", str(time.time()), report, script]
    given = (f"--eval_batch_size={FLAGS.batch_size}", f"--precision={FLAGS.precision}")
    done = subprocess.run([*command, *given, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    with open(report, encoding="utf-8") as f:
        return json.load(f)


def write_texts(path: str) -> None:
    """Labelled texts of one length."""
    size = 4 * FLAGS.batch_size
    rows = [
        f"{' '.join(WORDS[i % 3 :])} {' '.join(WORDS[: i % 3])}\t{i % 2}\n" for i in range(size)
    ]
    with open(path, "w", encoding="utf-8") as f:
        f.write("text\tlabel\n" + "".join(rows))


def cases(folder: str, config: str) -> dict[str, tuple[str, ...]]:
    """Commands by what they are called; the last reads what is trained here beforehand."""
    texts, trained = (os.path.join(folder, name) for name in ("texts.tsv", f"trained-{config}"))
    write_texts(texts)
    model = (f"--albert_config_file={config}", f"--spm_model_file={FLAGS.spm_model_file}")
    size = f"--train_batch_size={FLAGS.batch_size}"
    tune = ("run_classifier", "--do_train", f"--train_file={texts}", *model, size)
    short = (*tune[1:], "--train_step=1", f"--output_dir={trained}")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([sys.executable, f"{tune[0]}.py", *short], check=True, **quiet)
    return {
        f"run_pretraining {config}": (
            "run_pretraining",
            f"--input_file={FLAGS.input_file}",
            f"--albert_config_file={config}",
            size,
        ),
        f"run_classifier {config}": tune,
        f"run_classifier --do_eval {config}": (
            "run_classifier",
            "--do_eval",
            f"--eval_file={texts}",
            f"--output_dir={trained}",
        ),
    }


def measure() -> dict[str, dict]:
    """Takes turns; gives median seconds by case and phase."""
    found: dict[str, list[dict[str, list[float]]]] = {}
    packages: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        commands = {k: v for c in FLAGS.albert_config_files for k, v in cases(folder, c).items()}
        for turn in range(FLAGS.turns):
            for script in SCRIPTS:
                found.setdefault(f"{script} --help", []).append(run_help(script))
            for name, command in commands.items():
                output = os.path.join(folder, f"run-{turn}-{len(found)}-{name.replace(' ', '-')}")
                command = (command[0], f"--output_dir={output}", *command[1:])
                report = run_script(folder, *command)
                found.setdefault(name, []).append(report["phases"])
                packages[name] = report["optional_packages"]
    return {name: _medians(turns, packages.get(name, [])) for name, turns in found.items()}


def _medians(turns: list[dict[str, list[float]]], packages: list[str]) -> dict:
    # Up to the end of the first step.
    totals = [
        [sum(seconds[i] for phase, seconds in t.items() if phase != "second step") for t in turns]
        for i in range(2)
    ]
    phases = {
        phase: [round(statistics.median(t[phase][i] for t in turns), 2) for i in range(2)]
        for phase in PHASES
        if phase in turns[0]
    }
    return {
        "wall_seconds": round(statistics.median(totals[0]), 2),
        "processor_seconds": round(statistics.median(totals[1]), 2),
        "processor_seconds_range": [round(min(totals[1]), 2), round(max(totals[1]), 2)],
        "phases": phases,
        "optional_packages": packages,
    }


def _main() -> None:
    for config in FLAGS.albert_config_files:
        AlbertConfig.load(config)
    results = measure()
    print("wall and processor seconds from the command to the end of the first step")
    for name, result in results.items():
        low, high = result["processor_seconds_range"]
        print(
            f"\n{name}: {result['wall_seconds']:.2f} s, processor "
            f"{result['processor_seconds']:.2f} s ({low:.2f} to {high:.2f})"
        )
        if len(result["phases"]) > 1:
            for phase, (wall, processor) in result["phases"].items():
                print(f"  {phase:20} {wall:6.2f}  {processor:6.2f}")
            print(f"  of the optional packages: {', '.join(result['optional_packages']) or 'none'}")
    report = {"benchmark": "startup", "machine": machine.describe(), "results": results}
    print(json.dumps(report))


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
