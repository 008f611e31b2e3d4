# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles the train and prediction steps of every task for TPUs, without a TPU.

  python -m benchmarks.tpu steps --compiler_python=.venv-peers/tpu/bin/python --output_dir=runs/tpu
  python -m benchmarks.tpu largest --compiler_python=.venv-peers/tpu/bin/python \\
    --output_dir=runs/tpu --configs=albert_base_v2 --chips=v3,v5e

"steps" compiles each task's steps at --rows rows a core; "largest" looks for about the largest
batch that a core can hold, by doubling and halving. Each step is lowered by TensorFlow here and
compiled by Google's compiler in an environment of its own, see benchmarks/README.md. Results go to
results.jsonl in --output_dir, a line for each program. What has a line is not compiled again, so a
run that was stopped continues; after a change of the model, use another folder.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress
from benchmarks.common import add_lines, markdown, read_lines
from benchmarks.flops import PASSES, forward_flops
from benchmarks.random_step import predictions_of
from benchmarks.step_programs import PRETRAINING, STAGES, TASKS, TRAIN, Step
from benchmarks.subcommands import run_command

#: For the compiler: the smallest slice that it describes, and how the cores of a chip are used;
#: "megacore" makes one device of both. TensorFlow's runtime does not serve v6e.
CHIPS = {
    "v2": ("v2:2x2", None),
    "v3": ("v3:2x2", None),
    "v4": ("v4:2x2x1", "megacore"),
    "v5e": ("v5e:2x2", None),
    "v5p": ("v5p:2x2x1", None),
    "v6e": ("v6e:2x2", None),
}
RESULTS_FILE = "results.jsonl"
_GIB = 2**30
_COMPILER = os.path.join(os.path.dirname(__file__), "compiler.py")
_LOWER = (
    "import json, sys; from benchmarks.step_programs import Step, lower; "
    "open(sys.argv[2], 'wb').write(lower(Step(**json.loads(sys.argv[1]))))"
)

FLAGS = flags.FLAGS


def _define_compile_flags() -> None:
    define_path("output_dir", None, "Folder of results.jsonl.", required=True)
    define_path("compiler_python", None, "The compiler's Python, see README.", required=True)
    define_path("configs", "albert_base_v2", "Models: presets or JSON files.")
    flags.DEFINE_list("chips", list(CHIPS), f"Of {', '.join(CHIPS)}.")
    flags.DEFINE_list("seq_lengths", ["128"], "Positions of a sequence.")
    flags.DEFINE_list("recompute", ["no"], "no, yes or both.")


def _define_steps_flags() -> None:
    _define_compile_flags()
    flags.DEFINE_list("tasks", list(TASKS), f"Of {', '.join(TASKS)}.")
    flags.DEFINE_integer("rows", 32, "Examples of a core.", 1)
    flags.DEFINE_list("micro_batches", ["1"], "Parts that a core's examples are cut into.")


@dataclasses.dataclass
class Results:
    """The lines of results.jsonl, and what adds to them.

    Attributes:
      folder: to read and write; made if it does not exist.
      python: of the compiler's environment.
    """

    folder: str
    python: str

    def __post_init__(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        self._path = os.path.join(self.folder, RESULTS_FILE)
        self._newest: dict[tuple, dict[str, Any]] = {}
        self._newest.update((_key(line), line) for line in read_lines(self._path))

    def compiled(self, step: Step, chips: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yields the line of a step for each chip, and compiles what has none."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "step")
            for chip in chips:
                line = {**dataclasses.asdict(step), "chip": chip}
                key = _key(line)
                if key not in self._newest:
                    if not os.path.exists(program):
                        settings = json.dumps(dataclasses.asdict(step))
                        _run([sys.executable, "-c", _LOWER, settings, program])
                    self._newest[key] = {**line, **self._compile(step, program, chip)}
                    add_lines(self._path, [self._newest[key]])
                yield self._newest[key]

    def _compile(self, step: Step, program: str, chip: str) -> dict[str, Any]:
        topology, chip_config = CHIPS[chip]
        command = [self.python, _COMPILER, program, f"--topology={topology}"]
        command += [f"--chip_config={chip_config}"] * bool(chip_config)
        return json.loads(_run(command))


_FIELDS = [field.name for field in dataclasses.fields(Step)]


def _key(line: dict[str, Any]) -> tuple:
    return tuple(line[name] for name in (*_FIELDS, "chip"))


def _run(command: list[str]) -> str:
    """Returns the last line that a program prints."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise AlbertError(f"{command[0]} failed: {done.stderr.strip()[-800:]}")
    return done.stdout.splitlines()[-1] if done.stdout else ""


def model_flops(step: Step) -> float:
    """Returns the operations of a step's matrix products, by the model's own count."""
    config = AlbertConfig.load(step.config)
    has_predictions = step.task in PRETRAINING
    predictions = predictions_of(step.seq_length) if has_predictions else 0
    sequences = step.rows * (4 if step.task == "multiple_choice" else 1)
    passes = PASSES + step.recompute if step.stage == TRAIN else 1
    reads_all = has_predictions or step.task.startswith("squad")
    num_read = None if reads_all else 1
    return sequences * passes * forward_flops(config, step.seq_length, predictions, num_read)


def fits(line: dict[str, Any]) -> bool:
    """Returns whether the compiler accepted a program."""
    return "error" not in line


def largest_batch(results: Results, step: Step, chip: str) -> int:
    """Returns the most rows, a multiple of 8, that fit into a chip; within an eighth."""

    def accepted(rows: int) -> bool:
        (line,) = results.compiled(dataclasses.replace(step, rows=rows), [chip])
        return fits(line)

    most, refused = 0, 8
    while accepted(refused):
        most, refused = refused, 2 * refused
    while refused - most > max(8, most // 8):
        middle = (most + refused) // 16 * 8
        most, refused = (middle, refused) if accepted(middle) else (most, middle)
    return most


def steps_table(lines: Iterable[dict[str, Any]]) -> str:
    """Returns compiled programs as a Markdown table."""
    heads = "chip task stage model length rows state,_GiB temporaries,_GiB accessed,_GB "
    heads += "cycles,_millions TFLOP of_the_model's_count"
    rows = [[head.replace("_", " ") for head in heads.split()]]
    for line in lines:
        step = Step(**{name: line[name] for name in _FIELDS})
        batch = f"{step.rows}" + (f" in {step.micro_batches} parts" * (step.micro_batches > 1))
        stage = step.stage + ", recompute" * step.recompute
        row = [line["chip"], step.task, stage, step.config, f"{step.seq_length}", batch]
        rows.append(row)
        if not fits(line):
            row += ["does not fit", *[""] * 5]
            continue
        state, temporary = (line[f"{part}_bytes"] / _GIB for part in ("argument", "temp"))
        ratio = line["flops"] / model_flops(step)
        # The compiler gives no cycles for loops.
        cycles = f"{line['entry_cycles'] / 1e6:.0f}" if step.micro_batches == 1 else ""
        row += [f"{state:.2f}", f"{temporary:.2f}", f"{line['bytes_accessed'] / 1e9:.1f}", cycles]
        row += [f"{line['flops'] / 1e12:.2f}", f"{ratio:.2f}"]
    return markdown(rows)


def _steps() -> None:
    _check_names("tasks", TASKS)
    results = _results()
    configs = FLAGS.configs.split(",")
    chosen = itertools.product(
        FLAGS.tasks, configs, FLAGS.seq_lengths, STAGES, FLAGS.micro_batches, FLAGS.recompute
    )
    steps = [
        Step(task, config, int(length), FLAGS.rows, stage, int(parts), again == "yes")
        for task, config, length, stage, parts, again in chosen
        if stage == TRAIN or (parts, again) == (FLAGS.micro_batches[0], FLAGS.recompute[0])
    ]
    lines = []
    with Progress("compile", len(steps) * len(FLAGS.chips), "programs") as progress:
        for step in steps:
            for line in results.compiled(step, FLAGS.chips):
                lines.append(line)
                progress.update(1)
    print(steps_table(lines))


def _largest() -> None:
    results = _results()
    print("| model | length | recompute | " + " | ".join(FLAGS.chips) + " |")
    print("|---" * (3 + len(FLAGS.chips)) + "|")
    for config, length, again in itertools.product(
        FLAGS.configs.split(","), FLAGS.seq_lengths, FLAGS.recompute
    ):
        step = Step("masked", config, int(length), 8, recompute=again == "yes")
        rows = [largest_batch(results, step, chip) for chip in FLAGS.chips]
        print(f"| {config} | {length} | {again} | " + " | ".join(map(str, rows)) + " |", flush=True)


def _results() -> Results:
    _check_names("chips", CHIPS)
    return Results(FLAGS.output_dir, FLAGS.compiler_python)


def _check_names(flag: str, names: Iterable[str]) -> None:
    """Raises AlbertError for an unknown name in a list."""
    unknown = sorted({*FLAGS[flag].value} - {*names})
    if unknown:
        raise AlbertError(f"--{flag} has {', '.join(unknown)}; it takes {', '.join(names)}.")


#: What `script.run` takes, by the first argument.
COMMANDS = {
    "steps": (_steps, _define_steps_flags),
    "largest": (_largest, _define_compile_flags),
}

if __name__ == "__main__":
    run_command(COMMANDS, __doc__)
