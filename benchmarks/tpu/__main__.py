# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles the train and prediction steps of every task for TPUs, without a TPU.

  python -m benchmarks.tpu steps --compiler_python=.venv-peers/tpu/bin/python --output_dir=runs/tpu
  python -m benchmarks.tpu largest --compiler_python=.venv-peers/tpu/bin/python \\
    --output_dir=runs/tpu --configs=albert_base_v2 --chips=v3,v5e

"steps" compiles each task's steps at --rows rows a core; "largest" looks for about the largest
batch that a core can hold, by compiling ever closer to it. "table" prints what was found so far.
Each step is lowered by TensorFlow here and compiled by Google's compiler in an environment of its
own, see benchmarks/README.md. Results go to results.jsonl in --output_dir, a line for each program.
A program that has a line is not compiled again, so a run that was stopped continues.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress
from albert_tf.modeling.flops import PASSES, forward_flops
from benchmarks.path_lists import define_path_list
from benchmarks.random_step import predictions_of
from benchmarks.step_programs import PRETRAINING, STAGES, TASKS, TRAIN, Step
from benchmarks.tpu.chips import CHIPS

RESULTS_FILE = "results.jsonl"
_GIB = 2**30
_COMPILER = os.path.join(os.path.dirname(__file__), "compiler.py")
_LOWER = (
    "import json, sys; from benchmarks.step_programs import Step, lower; "
    "open(sys.argv[2], 'wb').write(lower(Step(**json.loads(sys.argv[1]))))"
)

FLAGS = flags.FLAGS


def _define_common_flags() -> None:
    define_path("output_dir", None, "Folder of results.jsonl.", required=True)


def _define_compile_flags() -> None:
    _define_common_flags()
    define_path("compiler_python", None, "The compiler's Python, see README.", required=True)
    define_path_list("configs", ["albert_base_v2"], "Models: presets or JSON files.")
    flags.DEFINE_list("chips", list(CHIPS), f"Of {', '.join(CHIPS)}.")
    flags.DEFINE_list("seq_lengths", ["128"], "Positions of a sequence.")
    flags.DEFINE_list("recompute", ["no"], "no, yes or both.")


def _define_steps_flags() -> None:
    _define_compile_flags()
    flags.DEFINE_list("tasks", list(TASKS), f"Of {', '.join(TASKS)}.")
    flags.DEFINE_integer("rows", 32, "Examples of a core.", 1)
    flags.DEFINE_list("micro_batches", ["1"], "Parts that a core's examples are cut into.")


class Results:
    """The lines of results.jsonl, and what adds to them.

    Args:
      folder: to read and write; made if it does not exist.
      python: of the compiler's environment; None if nothing is to be compiled.
    """

    def __init__(self, folder: str, python: str | None) -> None:
        os.makedirs(folder, exist_ok=True)
        self._path, self._python = os.path.join(folder, RESULTS_FILE), python
        self.lines: list[dict[str, Any]] = []
        if os.path.exists(self._path):
            with open(self._path, encoding="utf-8") as f:
                self.lines = [json.loads(line) for line in f]

    def compiled(self, step: Step, chips: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yields the line of a step for each chip, and compiles what has none."""
        described = dataclasses.asdict(step)
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "step.hlo")
            for chip in chips:
                line = {**described, "chip": chip}
                found = [x for x in self.lines if line.items() <= x.items()]
                if not found:
                    if not os.path.exists(program):
                        _run([sys.executable, "-c", _LOWER, json.dumps(described), program])
                    found = [{**line, **self._compile(program, chip)}]
                    self._add(found[0])
                yield found[0]

    def _compile(self, program: str, chip: str) -> dict[str, Any]:
        topology, chip_config, *_ = CHIPS[chip]
        command = [self._python, _COMPILER, program, topology]
        return json.loads(_run([*command, chip_config] if chip_config else command))

    def _add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        with open(self._path, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")


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
    predictions = predictions_of(step.seq_length) if step.task in PRETRAINING else 0
    sequences = step.rows * (4 if step.task == "multiple_choice" else 1)
    passes = PASSES + step.recompute if step.stage == TRAIN else 1
    return sequences * passes * forward_flops(config, step.seq_length, predictions)


def fits(line: dict[str, Any]) -> bool:
    """Returns whether the compiler accepted a program."""
    return "error" not in line


def used_gib(line: dict[str, Any]) -> float:
    """Returns a program's memory on the device in GiB: state, input and temporaries."""
    parts = ("argument_bytes", "output_bytes", "temp_bytes", "generated_code_bytes")
    return (sum(line[part] for part in parts) - line["alias_bytes"]) / _GIB


def largest_batch(results: Results, step: Step, chip: str) -> int:
    """Returns about the most rows for which a step fits into a chip's memory.

    The memory of a small batch gives an estimate, from which the search goes up or down in steps of
    an eighth until a program is accepted and the next one is refused. Rows are multiples of 8; 0 if
    8 rows do not fit.
    """

    def compiled(rows: int) -> dict[str, Any]:
        (line,) = results.compiled(dataclasses.replace(step, rows=rows), [chip])
        return line

    small = compiled(step.rows)
    if not fits(small):
        return _search(lambda rows: fits(compiled(rows)), step.rows)
    state = small["argument_bytes"] / _GIB
    rows = step.rows * (CHIPS[chip].hbm_gib - state) / (used_gib(small) - state)
    return _search(lambda rows: fits(compiled(rows)), max(step.rows, int(rows) // 8 * 8))


def _search(accepted: Callable[[int], bool], rows: int) -> int:
    """Returns accepted rows next to refused ones, starting from a guess."""
    if accepted(rows):
        while accepted(_more(rows)):
            rows = _more(rows)
        return rows
    while rows and not accepted(rows):
        rows = max(rows - max(8, rows // 64 * 8), 0)
    return rows


def _more(rows: int) -> int:
    return rows + max(8, rows // 64 * 8)


def steps_table(lines: Iterable[dict[str, Any]]) -> str:
    """Returns compiled programs as a Markdown table."""
    rows = [
        "| chip | task | stage | model | length | rows | state GiB | temporaries GiB | TFLOP | of "
        "the model's count |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    fields = [field.name for field in dataclasses.fields(Step)]
    for line in lines:
        step = Step(**{name: line[name] for name in fields})
        batch = f"{step.rows}" + (f" in {step.micro_batches} parts" * (step.micro_batches > 1))
        stage = step.stage + ", recompute" * step.recompute
        shape = f"| {line['chip']} | {step.task} | {stage} | {step.config} | {step.seq_length} "
        shape += f"| {batch}"
        if not fits(line):
            rows.append(f"{shape} | does not fit | | | |")
            continue
        state, temporary = (line[f"{part}_bytes"] / _GIB for part in ("argument", "temp"))
        ratio = line["flops"] / model_flops(step)
        flops = line["flops"] / 1e12
        rows.append(f"{shape} | {state:.2f} | {temporary:.2f} | {flops:.2f} | {ratio:.2f} |")
    return "\n".join(rows)


def _steps() -> None:
    _check_names("tasks", TASKS)
    results = Results(FLAGS.output_dir, _compiler())
    chosen = itertools.product(
        FLAGS.tasks, FLAGS.configs, FLAGS.seq_lengths, STAGES, FLAGS.micro_batches, FLAGS.recompute
    )
    steps = [
        Step(task, config, int(length), FLAGS.rows, stage, int(parts), again == "yes")
        for task, config, length, stage, parts, again in chosen
        if stage == TRAIN or (parts == FLAGS.micro_batches[0] and again == FLAGS.recompute[0])
    ]
    lines = []
    with Progress("compile", len(steps) * len(FLAGS.chips), "programs") as progress:
        for step in steps:
            for line in results.compiled(step, FLAGS.chips):
                lines.append(line)
                progress.update(1)
    print(steps_table(lines))


def _largest() -> None:
    results = Results(FLAGS.output_dir, _compiler())
    print("| model | length | recompute | " + " | ".join(FLAGS.chips) + " |")
    print("|---" * (3 + len(FLAGS.chips)) + "|")
    for config, length, again in itertools.product(
        FLAGS.configs, FLAGS.seq_lengths, FLAGS.recompute
    ):
        step = Step("masked", config, int(length), 16, recompute=again == "yes")
        rows = [largest_batch(results, step, chip) for chip in FLAGS.chips]
        print(f"| {config} | {length} | {again} | " + " | ".join(map(str, rows)) + " |", flush=True)


def _table() -> None:
    print(steps_table(Results(FLAGS.output_dir, None).lines))


def _compiler() -> str:
    _check_names("chips", CHIPS)
    return FLAGS.compiler_python


def _check_names(flag: str, names: Iterable[str]) -> None:
    """Raises AlbertError for an unknown name in a list."""
    unknown = sorted({*FLAGS[flag].value} - {*names})
    if unknown:
        raise AlbertError(f"--{flag} has {', '.join(unknown)}; it takes {', '.join(names)}.")


#: What `script.run` takes, by the first argument.
COMMANDS = {
    "steps": (_steps, _define_steps_flags),
    "largest": (_largest, _define_compile_flags),
    "table": (_table, _define_common_flags),
}

if __name__ == "__main__":
    script.run_command(COMMANDS, __doc__)
