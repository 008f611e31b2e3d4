# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrains with an emitted program on the device; needs JAX and NumPy only.

Weights and slots stay on the device. --workers other processes build the batches from what `text`
wrote, new ones in every pass over the text; this also needs sentencepiece and tqdm.

Every --save_steps, and at the end, the state is written to --output_dir as state-<step>.npz.
metrics.jsonl holds means over --log_steps. The same command continues from the newest state.
`checkpoint` turns a state into a run of run_pretraining.py.

A run that diverges (docs/divergence.md) ends with exit status 3; its last state is from before this
was noticed.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import AlbertError, DivergedError
from albert_tf.io.json_values import finite_only
from albert_tf.training.divergence import DivergenceCheck
from albert_tf.training.specs import STOP, RunConfig
from benchmarks.gpu_step.program import (
    FINGERPRINT,
    SLOT,
    Program,
    load_state,
    read_hlo,
    save_state,
)
from benchmarks.gpu_step.text import TextBatches

_LOG_FILE = "metrics.jsonl"
#: In a state: the step at which its run began.
_BEGIN = "first_step"
_STATE = re.compile(r"state-(\d+)\.npz(\.part00)?$")
#: Exit status of a run that has diverged.
DIVERGED = 3


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        "python3 -m benchmarks.gpu_step pretrain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--program", required=True, help="Folder of one program.")
    add("--text", required=True, help="File that `text` wrote.")
    add(
        "--examples", nargs="+", type=_json_object, default=[{}], metavar="JSON",
        help="For each kind of examples, options of the record builder that differ "
        "from its defaults, such as '{\"whole_sentences\": true, \"short_seq_prob\": 0}'."
    )  # fmt: skip
    add("--seed", type=int, default=12345, help="Seed of examples and masks.")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 2), help="Processes.")
    add("--output_dir", required=True, help="Folder for states and metrics.")
    add("--steps", type=int, required=True, help="The step to stop at.")
    add("--state", help="State to begin with, if --output_dir has none.")
    add("--device", default="cuda", choices=("cuda", "cpu"))
    add("--save_steps", type=int, default=1000, help="Steps between states.")
    add("--log_steps", type=int, default=50, help="Steps that are logged together.")
    add("--minutes", type=float, default=float("inf"), help="Time, after which it saves and ends.")
    add("--part_mib", type=float, help="Cut states into parts of this size.")
    add("--weights_only", action="store_true", help="Leave the slots out of the last state.")
    return parser.parse_args(arguments)


def _json_object(text: str) -> dict[str, Any]:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError
    return values


def states(folder: str) -> dict[int, str]:
    """Returns the paths of the states by step, without the endings of parts."""
    return {
        int(match[1]): path.removesuffix(".part00")
        for path in glob.glob(os.path.join(glob.escape(folder), "state-*"))
        if (match := _STATE.search(path))
    }


def newest_state(folder: str) -> str | None:
    """Returns the path of the state of the highest step, without the endings of parts."""
    found = states(folder)
    return found[max(found)] if found else None


def pretrain(options: argparse.Namespace) -> bool:
    """Trains; returns whether it got to the end, of the steps or of the time."""
    end = time.monotonic() + 60 * options.minutes
    os.makedirs(options.output_dir, exist_ok=True)
    program = Program.load(options.program)
    # Its processes must start before JAX.
    batches = TextBatches(options.text, program, options.examples, options.seed, options.workers)
    try:
        return _train(options, program, batches, end)
    finally:
        batches.close()


def _train(options: argparse.Namespace, program: Program, batches: TextBatches, end: float) -> bool:
    from benchmarks.gpu_step.device import DeviceStep, use

    use(options.device)
    device_step = DeviceStep(program, read_hlo(options.program))
    print(f"Compiled in {device_step.compile_seconds:.0f} s.", flush=True)
    state = _find_state(options, batches.fingerprint)
    if state and not any(parameter.name in state for parameter in program.of_kind(SLOT)):
        print("The state has no slots; they begin at zero.")
    device_step.load(state)
    step = first = int(state.get("step", 0))
    # Batches begin with the run, which may itself begin with another run's state.
    begin = int(state.get(_BEGIN, first))
    rows = batches.after(first - begin)
    part_bytes = int(options.part_mib * 2**20) if options.part_mib else None

    def save(weights_only: bool = False) -> None:
        arrays = device_step.state()
        if weights_only:
            for parameter in program.of_kind(SLOT):
                del arrays[parameter.name]
        arrays[FINGERPRINT] = np.array(batches.fingerprint)
        arrays[_BEGIN] = np.array(begin)
        save_state(os.path.join(options.output_dir, f"state-{step}.npz"), arrays, part_bytes)

    run_config = RunConfig("unused", on_divergence=STOP)
    divergence = DivergenceCheck(run_config, options.steps, lambda: states(options.output_dir))
    log_file = os.path.join(options.output_dir, _LOG_FILE)
    _cut_log(log_file, first)
    with open(log_file, "a", encoding="utf-8") as log:
        began = time.monotonic()
        while step < options.steps and time.monotonic() < end:
            periods = (options.log_steps, options.save_steps)
            stops = [(step // period + 1) * period for period in periods]
            count = min(options.steps, *stops) - step
            vectors = [device_step(device_step.put(next(rows))) for _ in range(count)]
            values = np.stack([np.asarray(vector) for vector in vectors])
            step += count
            columns = dict(zip(program.metrics, values.T.astype(float)))
            entry = log_entry(step, columns)
            log.write(json.dumps(finite_only(entry)) + "\n")
            log.flush()
            rate = (step - first) * program.tokens / (time.monotonic() - began)
            print(f"{json.dumps(entry)} {rate:,.0f} positions/s", flush=True)
            try:
                divergence.check(step, columns)
            except DivergedError as error:
                print(error, flush=True)
                return False
            if step % options.save_steps == 0 and step < options.steps:
                save()
    save(options.weights_only)
    return True


def _find_state(options: argparse.Namespace, fingerprint: str) -> dict[str, np.ndarray]:
    """Returns the newest state of --output_dir, or --state; empty: neither.

    Raises:
      AlbertError: the state in --output_dir was trained on other data.
    """
    path = newest_state(options.output_dir)
    if path:
        state = load_state(path)
        if str(state.pop(FINGERPRINT, "")) != fingerprint:
            raise AlbertError(
                f"{path} was trained on other data or with other --examples or --seed; give the "
                "same, or another --output_dir."
            )
        return state
    if not options.state:
        return {}
    state = load_state(options.state)
    for name in (FINGERPRINT, _BEGIN):
        state.pop(name, None)
    return state


def _cut_log(path: str, step: int) -> None:
    """Drops the entries of a log after a step, from which the run goes on."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as log:
        lines = [line for line in log if json.loads(line)["step"] <= step]
    with open(f"{path}.tmp", "w", encoding="utf-8") as log:
        log.writelines(lines)
    os.replace(f"{path}.tmp", path)


def log_entry(step: int, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns an entry of metrics.jsonl, as run_pretraining.py logs it: means of finite steps.

    Args:
      step: the last of some steps.
      columns: metrics of each of these steps, [steps].
    """
    columns = dict(columns)
    finite = columns.pop("finite") > 0
    tokens, positions = columns.pop("tokens"), columns.pop("positions")
    means = {
        name: float(column[finite].mean()) if finite.any() else float("nan")
        for name, column in columns.items()
    }
    means["learning_rate"] = float(columns["learning_rate"][-1])
    means["padding_share"] = 1 - float(tokens.sum() / positions.sum())
    return {"step": step, "split": "train", **means}


def main(arguments: Sequence[str]) -> None:
    """Runs the command; exits with DIVERGED if the run does, and with 1 after an error."""
    try:
        reached = pretrain(parse_arguments(arguments))
    except AlbertError as error:
        sys.exit(f"{error}")
    sys.exit(0 if reached else DIVERGED)
