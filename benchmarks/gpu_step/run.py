# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs emitted programs on a GPU and compares them with transformers under torch.compile.

Needs JAX with a plugin for the GPU, NumPy and, for the comparison, PyTorch and transformers; no
TensorFlow. First it runs the steps of the program "check" and compares their losses with
TensorFlow's. Then each program and transformers take turns on the same rows, each in its own
process, which waits while the other is measured. Figures are medians over the turns, with minimum
and maximum; ratios compare rates of the same turn. "peak share" is the model's FLOPs per second
(benchmarks.flops) divided by the card's dense bf16 rate. Both keep their batches on the
device; ours repeats a few, transformers has one. transformers updates with AdamW, ours with LAMB.
Both predict only the masked positions.

Results are written after each program, so that they are kept if the time runs out.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.gpu_step.program import BATCHES_FILE, PROGRAM_FILE, Batches, Program
from benchmarks.peers.protocol import Peer, PeerError

CHECK = "check"
#: Losses of bf16 steps differ by this at most. The last bits of products differ between devices,
#: and grow over the steps: on the CPU, JAX's client and TensorFlow differ by about 0.001.
LOSS_TOLERANCE = 0.02
#: So many of the norms of weights and slots must be within 10 %. Not all: the gradient of a key's
#: bias is zero but for rounding.
NORMS_ALIKE = 0.9
#: TFLOP/s of dense bf16 products by the makers' data sheets; the first name that fits counts.
BF16_TFLOPS = {"B200": 2250, "H200": 989, "H100 PCIe": 756, "H100": 989, "L40S": 362, "A100": 312}
#: Seconds that a program must have left to be begun, and that are kept for its turns.
_LEAST_SECONDS, _TURNS_SECONDS = 45.0, 25.0


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        "python3 -m benchmarks.gpu_step run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--programs", required=True, help="Folder that `emit` wrote.")
    add("--output", required=True, help="JSON file for the results.")
    add("--only", default="", help="Names of programs' folders to run, comma-separated.")
    add("--minutes", type=float, default=8.0, help="Time for everything.")
    add("--device", default="cuda", choices=("cuda", "cpu"))
    add("--turns", type=int, default=5, help="Turns of each.")
    add("--turn_seconds", type=float, default=1.0, help="Length of a turn.")
    add("--python", default=sys.executable, help="The Python with JAX.")
    add("--peer_python", default=sys.executable, help="The peer's; empty: no peer.")
    add("--peer_mode", default="compile", choices=("eager", "compile", "max_autotune"))
    add("--peer_start_seconds", type=float, default=180.0, help="Time for the peer to compile.")
    return parser.parse_args(arguments)


class Runner:
    """Runs the programs of a folder and writes the results file.

    Args:
      options: of `parse_arguments`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._end = time.monotonic() + 60 * options.minutes
        self.results: dict[str, Any] = {"turns": options.turns, "programs": [], "skipped": []}

    def run(self) -> bool:
        """Runs everything; returns whether the check passed and at least one program ran."""
        folder = os.path.abspath(self._options.programs)
        names = [
            name
            for name in sorted(os.listdir(folder), key=lambda name: (name != CHECK, name))
            if os.path.exists(os.path.join(folder, name, PROGRAM_FILE))
        ]
        if self._options.only:
            names = [name for name in names if name in self._options.only.split(",")]
        for name in names:
            if self._end - time.monotonic() < _LEAST_SECONDS:
                self.results["skipped"].append(name)
            else:
                entry = self._try_to_run(os.path.join(folder, name), name)
                print(json.dumps(entry), flush=True)
            self._save()
        ran = any("ours" in entry for entry in self.results["programs"])
        return ran and self.results.get(CHECK, {}).get("passed", True)

    def _save(self) -> None:
        path = os.path.abspath(self._options.output)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.tmp", "w", encoding="utf-8") as f:
            json.dump(self.results, f, indent=1)
        os.replace(f"{path}.tmp", path)

    def _try_to_run(self, folder: str, name: str) -> dict[str, Any]:
        """Checks or measures a program; its entry has an error where this is not possible."""
        entry: dict[str, Any] = {"name": name}
        try:
            if name == CHECK:
                self.results[CHECK] = entry
                entry.update(self._check(folder))
            else:
                self.results["programs"].append(entry)
                self._measure(folder, entry)
        except Exception as error:  # The others are still to be measured.
            entry.update(_described(error), passed=False)
        return entry

    def _check(self, folder: str) -> dict[str, Any]:
        """Compares the first steps of a program with TensorFlow's."""
        setup = {**self._setup(folder), "reference": True}
        with contextlib.closing(self._start("emitted", setup)) as ours:
            check = ours.facts()["check"]
        passed = check["loss_difference"] <= LOSS_TOLERANCE and check["norms_alike"] >= NORMS_ALIKE
        return {"passed": passed, "loss_tolerance": LOSS_TOLERANCE, **check}

    def _setup(self, folder: str) -> dict[str, Any]:
        return {"program": folder, "device": self._options.device}

    def _start(self, name: str, setup: dict[str, Any]) -> Peer:
        ours, left = name == "emitted", self._end - time.monotonic()
        # Where the other library does not start, ours is still to be measured.
        limit = left if ours else min(left - _TURNS_SECONDS, self._options.peer_start_seconds)
        python = self._options.python if ours else self._options.peer_python
        peer = Peer(name, python, setup, time_limit=limit)
        peer.end_after(self._end - time.monotonic())
        return peer

    def _measure(self, folder: str, entry: dict[str, Any]) -> None:
        """Measures a program and the peer, and fills in the entry."""
        program = Program.load(folder)
        entry.update(name=program.name, step=program.step, flops=program.flops)
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            setups = {"ours": ("emitted", self._setup(folder))}
            if self._options.peer_python:
                batch = os.path.join(scratch, "batch.npz")
                setups["peer"] = ("transformers", self._peer_setup(program, folder, batch))
            # Both compile at once, which takes most of the time.
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(2))
            started = {name: pool.submit(self._start, *setup) for name, setup in setups.items()}
            contestants = {}
            for name, future in started.items():
                try:
                    contestants[name] = stack.enter_context(contextlib.closing(future.result()))
                except PeerError as error:
                    entry[name] = _described(error)
            entry.update(self._turns(program, contestants))

    def _peer_setup(self, program: Program, folder: str, path: str) -> dict[str, Any]:
        rows = Batches(os.path.join(folder, BATCHES_FILE), program)[0]
        names = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}
        batch = {names.get(name, name): value for name, value in rows.items()}
        labels = np.full_like(batch["input_ids"], -100)
        np.put_along_axis(labels, batch["masked_lm_positions"], batch["masked_lm_ids"], axis=1)
        np.savez(path, **batch, labels=labels)
        return {
            "config": program.config,
            "batch": path,
            "policy": program.step["precision"],
            "mode": self._options.peer_mode,
            "masked_only": True,
            "threads": os.cpu_count(),
            "device": self._options.device,
        }

    def _turns(self, program: Program, contestants: dict[str, Peer]) -> dict[str, Any]:
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        steps, losses = {}, {}
        for name, run in contestants.items():
            run(2)
            steps[name] = max(2, round(2 * self._options.turn_seconds / run(2)[0]))
        for _ in range(self._options.turns):
            for name, run in contestants.items():
                spent, losses[name] = run(steps[name])
                seconds[name].append(spent / steps[name])
        found: dict[str, Any] = {
            name: {
                "tokens_per_second": _spread([program.tokens / s for s in seconds[name]]),
                "step_seconds": _spread(seconds[name]),
                "last_loss": losses[name],
                "versions": run.versions,
                **run.facts(),
            }
            for name, run in contestants.items()
        }
        peak = peak_flops(found["ours"]["device"]) if "ours" in found else None
        if peak and program.step["precision"] == "mixed_bfloat16":
            for figures in found.values():
                figures["peak_share"] = program.flops / figures["step_seconds"]["median"] / peak
        if len(found) == 2:
            pairs = zip(seconds["ours"], seconds["peer"])
            found["ratio"] = _spread([theirs / ours for ours, theirs in pairs])
        return found


def peak_flops(device_kind: str) -> float | None:
    """Returns a card's operations a second; None for a card that is not in the table."""
    rates = (tflops for name, tflops in BF16_TFLOPS.items() if name in device_kind)
    found = next(rates, None)
    return found and 1e12 * found


def _described(error: Exception) -> dict[str, str]:
    output = getattr(error, "output", "")
    return {"error": f"{type(error).__name__}: {error}", **({"output": output} if output else {})}


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most; benchmarks.common needs packages that this machine may lack."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main(arguments: Sequence[str]) -> None:
    """Runs the command; exits with 1 unless the check passed and a program ran."""
    sys.exit(0 if Runner(parse_arguments(arguments)).run() else 1)
