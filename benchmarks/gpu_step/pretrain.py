# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrains with an emitted program on the device; needs JAX and NumPy only.

Weights and slots stay on the device. The batches are those written by `data`, starting with the one
of the current step; after the last, they start again with the first. Every --save_steps, and at the
end, the state is written to --output_dir as state-<step>.npz, with the metrics of every step in
metrics.jsonl. The same command continues from the newest state. `checkpoint` turns a state into a
run of run_pretraining.py.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.gpu_step.program import (
    SLOT,
    Batches,
    Program,
    load_state,
    read_hlo,
    save_state,
)

_LOG_FILE = "metrics.jsonl"
_STATE = re.compile(r"state-(\d+)\.npz(\.part00)?$")
#: Besides the state: what the state was trained on.
FINGERPRINT = "data_fingerprint"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        "python3 -m benchmarks.gpu_step pretrain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--program", required=True, help="Folder of one program.")
    add("--data", required=True, help="File that `data` wrote.")
    add("--output_dir", required=True, help="Folder for states and metrics.")
    add("--steps", type=int, required=True, help="The step to stop at.")
    add("--state", help="State to begin with, where --output_dir has none.")
    add("--device", default="cuda", choices=("cuda", "cpu"))
    add("--save_steps", type=int, default=1000, help="Steps between states.")
    add("--log_steps", type=int, default=50, help="Steps started without waiting for them.")
    add("--minutes", type=float, default=float("inf"), help="Time, after which it saves and ends.")
    add("--part_mib", type=float, help="Cut states into parts of this size.")
    add("--weights_only", action="store_true", help="Leave the slots out of the last state.")
    return parser.parse_args(arguments)


def newest_state(folder: str) -> str | None:
    """Returns the path of the state of the highest step, without the endings of parts."""
    steps = {
        int(match[1]): path.removesuffix(".part00")
        for path in glob.glob(os.path.join(glob.escape(folder), "state-*"))
        if (match := _STATE.search(path))
    }
    return steps[max(steps)] if steps else None


def pretrain(options: argparse.Namespace) -> int:
    """Trains; returns the step reached."""
    from benchmarks.gpu_step.device import DeviceStep, use

    end = time.monotonic() + 60 * options.minutes
    use(options.device)
    os.makedirs(options.output_dir, exist_ok=True)
    program = Program.load(options.program)
    batches = Batches(options.data, program)
    path = newest_state(options.output_dir) or options.state
    state = load_state(path) if path else {}
    fingerprint = str(batches.more[FINGERPRINT])
    if state.pop(FINGERPRINT, fingerprint) != fingerprint:
        raise ValueError(f"{path} was trained on other data than {options.data}.")
    if state and not any(parameter.name in state for parameter in program.of_kind(SLOT)):
        print(f"{path} has no slots; they begin at zero.")
    step = first = int(state.get("step", 0))
    offset = int(batches.more["first_step"])
    device_step = DeviceStep(program, read_hlo(options.program), state)
    print(f"From step {step}; compiled in {device_step.compile_seconds:.0f} s.", flush=True)
    part_bytes = int(options.part_mib * 2**20) if options.part_mib else None

    def save(weights_only: bool = False) -> None:
        arrays = device_step.state()
        if weights_only:
            for parameter in program.of_kind(SLOT):
                del arrays[parameter.name]
        arrays[FINGERPRINT] = np.array(fingerprint)
        save_state(os.path.join(options.output_dir, f"state-{step}.npz"), arrays, part_bytes)

    with open(os.path.join(options.output_dir, _LOG_FILE), "a", encoding="utf-8") as log:
        began = time.monotonic()
        while step < options.steps and time.monotonic() < end:
            periods = (options.log_steps, options.save_steps)
            stops = [(step // period + 1) * period for period in periods]
            count = min(options.steps, *stops) - step
            vectors = [
                device_step(device_step.put(batches[step + i - offset])) for i in range(count)
            ]
            values = np.stack([np.asarray(vector) for vector in vectors])
            for i, row in enumerate(values.astype(float)):
                line = {"step": step + i + 1, **dict(zip(program.metrics, row.tolist()))}
                log.write(json.dumps(line) + "\n")
            log.flush()
            step += count
            rate = (step - first) * program.tokens / (time.monotonic() - began)
            print(_progress(step, dict(zip(program.metrics, values.mean(0))), rate), flush=True)
            if step % options.save_steps == 0 and step < options.steps:
                save()
    save(options.weights_only)
    return step


def _progress(step: int, means: dict[str, float], rate: float) -> str:
    return (
        f"step {step}: loss {means['loss']:.3f}, masked LM {means['masked_lm_accuracy']:.1%}, "
        f"sentence order {means['sentence_order_accuracy']:.0%}, {rate:,.0f} tokens/s"
    )


def main(arguments: Sequence[str]) -> None:
    """Runs the command."""
    pretrain(parse_arguments(arguments))
