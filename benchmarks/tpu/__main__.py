# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles the train and prediction steps of every task for TPUs, without a TPU.

  python -m benchmarks.tpu steps --compiler_python=.venv-peers/tpu/bin/python --output_dir=runs/tpu
  python -m benchmarks.tpu largest --compiler_python=.venv-peers/tpu/bin/python \\
    --output_dir=runs/tpu --configs=albert_base_v2 --chips=v3,v5e

"steps" compiles each task's steps at --rows rows a core; "largest" looks for about the largest
batch that a core can hold, by compiling ever closer to it. "table" prints what was found so far,
and "operations" which operations of a kept program access most memory. Each step is lowered by
TensorFlow here and compiled by Google's compiler in an environment of its own, see
benchmarks/README.md. Results go to results.jsonl in --output_dir, a line for each program. What has
a line is not compiled again, so a run that was stopped continues; after a change of the model,
--again adds new lines, which count from then on.

The task jax_masked is the step of "masked" in plain JAX (jax_peer.py), to compare with.
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
from benchmarks.json_lines import add_lines, read_lines
from benchmarks.path_lists import define_path_list
from benchmarks.random_step import predictions_of
from benchmarks.step_programs import PRETRAINING, STAGES, TASKS, TRAIN, Step
from benchmarks.tpu.chips import CHIPS, topology
from benchmarks.tpu.operations import operations_table

RESULTS_FILE = "results.jsonl"
#: The task of jax_peer.py.
PEER = "jax_masked"
_GIB = 2**30
_FOLDER = os.path.dirname(__file__)
_COMPILER, _PEER = (os.path.join(_FOLDER, name) for name in ("compiler.py", "jax_peer.py"))
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
    flags.DEFINE_boolean("again", False, "Compile programs that have a line, too.")
    define_path("programs_dir", None, "Folder to keep the compiled programs' text in.")


def _define_steps_flags() -> None:
    _define_compile_flags()
    flags.DEFINE_list("tasks", list(TASKS), f"Of {', '.join((*TASKS, PEER))}.")
    flags.DEFINE_integer("rows", 32, "Examples of a core.", 1)
    flags.DEFINE_list("micro_batches", ["1"], "Parts that a core's examples are cut into.")
    flags.DEFINE_integer("replicas", 1, "Devices that make a step together.", 1)


def _define_operations_flags() -> None:
    define_path("program", None, "A file of --programs_dir.", required=True)
    flags.DEFINE_integer("top", 20, "Rows of the table.", 1)


@dataclasses.dataclass
class Results:
    """The lines of results.jsonl, and what adds to them.

    Attributes:
      folder: to read and write; made if it does not exist.
      python: of the compiler's environment; None if nothing is to be compiled.
      again: compile programs that had a line before.
      programs: folder to keep the text of compiled programs in, or None.
    """

    folder: str
    python: str | None = None
    again: bool = False
    programs: str | None = None

    def __post_init__(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        self._path = os.path.join(self.folder, RESULTS_FILE)
        self._newest: dict[tuple, dict[str, Any]] = {}
        self._compiled_now: set[tuple] = set()
        for line in read_lines(self._path):
            found = {**_DEFAULTS, **line}
            self._newest[_key(found)] = found

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The newest line of each program."""
        return list(self._newest.values())

    def compiled(self, step: Step, chips: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yields the line of a step for each chip, and compiles what has none."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "step")
            for chip in chips:
                line = {**dataclasses.asdict(step), "chip": chip}
                key = _key(line)
                if key not in self._newest or (self.again and key not in self._compiled_now):
                    if not os.path.exists(program):
                        _prepare(step, program)
                    self._add({**line, **self._compile(step, program, chip)})
                yield self._newest[key]

    def _compile(self, step: Step, program: str, chip: str) -> dict[str, Any]:
        script = _PEER if step.task == PEER else _COMPILER
        command = [self.python, script, program, f"--topology={topology(chip, step.replicas)}"]
        command.append(f"--replicas={step.replicas}")
        if CHIPS[chip].chip_config:
            command.append(f"--chip_config={CHIPS[chip].chip_config}")
        if self.programs:
            os.makedirs(self.programs, exist_ok=True)
            command.append(f"--keep={os.path.join(self.programs, _file_name(step, chip))}")
        return json.loads(_run(command))

    def _add(self, line: dict[str, Any]) -> None:
        self._newest[_key(line)] = line
        self._compiled_now.add(_key(line))
        add_lines(self._path, [line])


_FIELDS = [field.name for field in dataclasses.fields(Step)]
#: Of fields that older lines lack.
_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(Step)
    if field.default is not dataclasses.MISSING
}


def _key(line: dict[str, Any]) -> tuple:
    return tuple(line[name] for name in (*_FIELDS, "chip"))


def _file_name(step: Step, chip: str) -> str:
    name = os.path.splitext(os.path.basename(step.config))[0]
    parts = [chip, step.task, step.stage, name, f"{step.seq_length}x{step.rows}"]
    parts += [f"parts{step.micro_batches}"] * (step.micro_batches > 1)
    parts += [f"replicas{step.replicas}"] * (step.replicas > 1)
    return "_".join([*parts, *["recompute"] * step.recompute]) + ".hlo.gz"


def _prepare(step: Step, path: str) -> None:
    """Writes what the compiler's script reads: a step's HLO, or the peer's settings."""
    if step.task != PEER:
        _run([sys.executable, "-c", _LOWER, json.dumps(dataclasses.asdict(step)), path])
        return
    settings = {
        "config": AlbertConfig.load(step.config).to_dict(),
        "seq_length": step.seq_length,
        "rows": step.rows,
        "predictions": predictions_of(step.seq_length),
    }
    with open(path, "w", encoding="utf-8") as f:
        json.dump(settings, f)


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
    has_predictions = step.task in (*PRETRAINING, PEER)
    predictions = predictions_of(step.seq_length) if has_predictions else 0
    sequences = step.rows * (4 if step.task == "multiple_choice" else 1)
    passes = PASSES + step.recompute if step.stage == TRAIN else 1
    reads_all = has_predictions or step.task.startswith("squad")
    num_read = None if reads_all else 1
    return sequences * passes * forward_flops(config, step.seq_length, predictions, num_read)


def fits(line: dict[str, Any]) -> bool:
    """Returns whether the compiler accepted a program."""
    return "error" not in line


def used_gib(line: dict[str, Any]) -> float:
    """Returns a program's memory on the device in GiB: state, input and temporaries."""
    parts = ("argument_bytes", "output_bytes", "temp_bytes", "generated_code_bytes")
    return (sum(line[part] for part in parts) - line["alias_bytes"]) / _GIB


def largest_batch(results: Results, step: Step, chip: str) -> int:
    """Returns about the most rows for which a step fits into a chip's memory.

    If a program of this step fills most of a chip's memory, of this or another chip, the search
    begins at its rows times the ratio of the memories. Otherwise, the memory of a small batch gives
    a first estimate, a quarter above which the search begins, as the compiler saves memory where it
    must and refuses fast. From there, the last two accepted programs give the next estimate. At the
    end the search goes up or down in steps of an eighth until a program is accepted and the next
    larger one is refused. Rows are multiples of 8; 0 if 8 rows do not fit.
    """

    def compiled(rows: int) -> dict[str, Any]:
        (line,) = results.compiled(dataclasses.replace(step, rows=rows), [chip])
        return line

    if rows := _rows_from_full_programs(results.lines, step, chip):
        return _search(lambda rows: fits(compiled(rows)), rows)
    small = compiled(step.rows)
    if not fits(small):
        return _search(lambda rows: fits(compiled(rows)), step.rows)
    limit, state = CHIPS[chip].hbm_gib, small["argument_bytes"] / _GIB
    estimate = 1.25 * step.rows * (limit - state) / (used_gib(small) - state)
    last, rows = small, max(step.rows, int(estimate) // 8 * 8)
    while rows >= _more(last["rows"]) and fits(line := compiled(rows)):
        left, more = limit - used_gib(line), used_gib(line) - used_gib(last)
        estimate = rows + left * (rows - last["rows"]) / more if more > 0 else rows
        last, rows = line, int(min(estimate, 4 * rows)) // 8 * 8
    return _search(lambda rows: fits(compiled(rows)), max(rows, last["rows"]))


def _rows_from_full_programs(lines: Iterable[dict[str, Any]], step: Step, chip: str) -> int:
    """Returns the rows that programs which fill a chip's memory suggest; 0 without such a program.

    The chip itself counts most, and then the one whose memory is closest in size.
    """
    step_key = _key({**dataclasses.asdict(step), "rows": 0, "chip": chip})
    large = [
        line
        for line in lines
        if _key({**line, "rows": 0, "chip": chip}) == step_key
        and fits(line)
        and used_gib(line) > 0.8 * CHIPS[line["chip"]].hbm_gib
    ]
    if not large:
        return 0
    limit = CHIPS[chip].hbm_gib

    def distance(line: dict[str, Any]) -> tuple[int, int]:
        return abs(CHIPS[line["chip"]].hbm_gib - limit), -line["rows"]

    nearest = min(large, key=distance)
    state = nearest["argument_bytes"] / _GIB
    # Its memory counts as full: the largest batch leaves less free than the next step would take.
    free = CHIPS[nearest["chip"]].hbm_gib - state
    return int(nearest["rows"] * max(limit - state, 0) / free) // 8 * 8


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
        "| chip | task | stage | model | length | rows | state GiB | temporaries GiB | accessed GB "
        "| cycles, millions | TFLOP | of the model's count |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        step = Step(**{name: line[name] for name in _FIELDS})
        batch = f"{step.rows}" + (f" in {step.micro_batches} parts" * (step.micro_batches > 1))
        batch += f" on each of {step.replicas}" * (step.replicas > 1)
        stage = step.stage + ", recompute" * step.recompute
        shape = f"| {line['chip']} | {step.task} | {stage} | {step.config} | {step.seq_length} "
        shape += f"| {batch}"
        if not fits(line):
            rows.append(f"{shape} | does not fit | | | | | |")
            continue
        state, temporary = (line[f"{part}_bytes"] / _GIB for part in ("argument", "temp"))
        ratio = line["flops"] / model_flops(step)
        # The compiler gives no cycles for loops, and older lines have none.
        cycles = line.get("entry_cycles", 0) / 1e6 if step.micro_batches == 1 else 0
        rows.append(
            f"{shape} | {state:.2f} | {temporary:.2f} | {line['bytes_accessed'] / 1e9:.1f} "
            f"| {f'{cycles:.0f}' if cycles else ''} | {line['flops'] / 1e12:.2f} | {ratio:.2f} |"
        )
    return "\n".join(rows)


def _steps() -> None:
    _check_names("tasks", (*TASKS, PEER))
    results = _results()
    chosen = itertools.product(
        FLAGS.tasks, FLAGS.configs, FLAGS.seq_lengths, STAGES, FLAGS.micro_batches, FLAGS.recompute
    )
    steps = [
        Step(
            task,
            config,
            int(length),
            FLAGS.rows,
            stage,
            int(parts),
            again == "yes",
            replicas=FLAGS.replicas,
        )
        for task, config, length, stage, parts, again in chosen
        if (stage == TRAIN or task != PEER)
        and (stage == TRAIN or (parts, again) == (FLAGS.micro_batches[0], FLAGS.recompute[0]))
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
        FLAGS.configs, FLAGS.seq_lengths, FLAGS.recompute
    ):
        step = Step("masked", config, int(length), 16, recompute=again == "yes")
        rows = [largest_batch(results, step, chip) for chip in FLAGS.chips]
        print(f"| {config} | {length} | {again} | " + " | ".join(map(str, rows)) + " |", flush=True)


def _table() -> None:
    print(steps_table(Results(FLAGS.output_dir).lines))


def _operations() -> None:
    print(operations_table(FLAGS.program, FLAGS.top))


def _results() -> Results:
    _check_names("chips", CHIPS)
    return Results(FLAGS.output_dir, FLAGS.compiler_python, FLAGS.again, FLAGS.programs_dir)


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
    "operations": (_operations, _define_operations_flags),
}

if __name__ == "__main__":
    script.run_command(COMMANDS, __doc__)
