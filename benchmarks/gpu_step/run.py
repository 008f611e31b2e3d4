# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs emitted programs on a GPU and compares them with transformers under torch.compile.

Needs JAX with a plugin for the GPU, NumPy and, for the comparison, PyTorch and transformers; no
TensorFlow. First it runs the steps of the program "check" and compares their losses with
TensorFlow's. Then each program and transformers take turns on the same rows, each in its own
process, which waits while the other is measured. Figures are medians over the turns, with minimum
and maximum; ratios compare rates of the same turn. "peak share" is the model's FLOPs per second
(albert_tf.modeling.flops) divided by the card's dense bf16 rate. Both keep their batches on the
device; ours repeats a few, transformers has one. transformers updates with AdamW, ours with LAMB.
Both predict only the masked positions, unless --peer_all_positions is given.

Results are written after each program, so that they are kept if the time runs out.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.gpu_step.cards import peak_flops
from benchmarks.gpu_step.program import BATCHES_FILE, PROGRAM_FILE, Batches, Program
from benchmarks.peers.protocol import Peer, PeerError

CHECK = "check"
#: Losses of bf16 steps differ by this at most. The last bits of products differ between devices,
#: and grow over the steps: on the CPU, JAX's client and TensorFlow differ by about 0.001.
LOSS_TOLERANCE = 0.02
#: So many of the norms of weights and slots must be within 10 %. Not all: the gradient of a key's
#: bias is zero but for rounding.
NORMS_ALIKE = 0.9
#: Seconds that a program must have left to be begun, and that are kept for its turns.
_LEAST_SECONDS, _TURNS_SECONDS = 45.0, 25.0
_GIB = 2**30


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
    add("--peer_all_positions", action="store_true", help="The peer's own loss, as it is.")
    add("--no_check", action="store_true", help="Leave the comparison with TensorFlow out.")
    return parser.parse_args(arguments)


class Runner:
    """Runs the programs of a folder and writes the results file.

    Args:
      options: of `parse_arguments`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._end = time.monotonic() + 60 * options.minutes
        self.results: dict[str, Any] = {
            "benchmark": "gpu_step",
            "minutes": options.minutes,
            "turns": options.turns,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "programs": [],
            "skipped": [],
        }

    def run(self) -> bool:
        """Runs everything; returns whether the check passed and at least one program ran."""
        folder = os.path.abspath(self._options.programs)
        names = sorted(
            name for name in os.listdir(folder)
            if name != CHECK and os.path.exists(os.path.join(folder, name, PROGRAM_FILE))
        )  # fmt: skip
        if self._options.only:
            names = [name for name in names if name in self._options.only.split(",")]
        check = os.path.join(folder, CHECK)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            checked = None
            if os.path.exists(check) and not self._options.no_check:
                checked = pool.submit(self._check, check)
            for name in names:
                if self._left() < _LEAST_SECONDS:
                    self.results["skipped"].append(name)
                    self._save()
                    continue
                self._try_to_measure(os.path.join(folder, name), pool, checked)
            if checked:
                checked.result()
        self._save()
        self._print()
        ran = any("ours" in entry for entry in self.results["programs"])
        return ran and self.results.get("check", {}).get("passed", True)

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _save(self) -> None:
        path = os.path.abspath(self._options.output)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.tmp", "w", encoding="utf-8") as f:
            json.dump(self.results, f, indent=1)
        os.replace(f"{path}.tmp", path)

    def _check(self, folder: str) -> None:
        """Compares the first steps of a program with TensorFlow's."""
        try:
            setup = {**self._setup(folder), "reference": True}
            with contextlib.closing(self._start("emitted", setup)) as ours:
                check = ours.facts()["check"]
        except PeerError as error:
            self.results["check"] = {"passed": False, **_described(error)}
            print(f"check: {error}", flush=True)
            return
        passed = check["loss_difference"] <= LOSS_TOLERANCE and check["norms_alike"] >= NORMS_ALIKE
        limits = {"loss_tolerance": LOSS_TOLERANCE, "least_norms_alike": NORMS_ALIKE}
        self.results["check"] = {"passed": passed, **limits, **check}
        print(
            f"check: {len(check['losses'])} losses within {check['loss_difference']:.4f} of "
            f"TensorFlow's ({'passed' if passed else 'FAILED'}; {LOSS_TOLERANCE} allowed)",
            flush=True,
        )

    def _setup(self, folder: str) -> dict[str, Any]:
        return {"program": folder, "device": self._options.device}

    def _start(self, name: str, setup: dict[str, Any]) -> Peer:
        ours = name == "emitted"
        python = self._options.python if ours else self._options.peer_python
        # Where one does not start, the other is still to be measured.
        limit = self._left()
        if not ours:
            limit = min(limit - _TURNS_SECONDS, self._options.peer_start_seconds)
        peer = Peer(name, python, setup, time_limit=limit)
        peer.end_after(self._left())
        return peer

    def _try_to_measure(
        self,
        folder: str,
        pool: concurrent.futures.Executor,
        checked: concurrent.futures.Future | None,
    ) -> None:
        """Measures a program and adds its entry, with an error where it cannot be measured."""
        entry: dict[str, Any] = {"name": os.path.basename(folder)}
        self.results["programs"].append(entry)
        began = time.monotonic()
        try:
            self._measure(folder, entry, pool, checked)
        except Exception as error:  # The others are still to be measured.
            entry.update(_described(error))
        entry["seconds"] = time.monotonic() - began
        self._save()
        print(_line(entry), flush=True)

    def _measure(
        self,
        folder: str,
        entry: dict[str, Any],
        pool: concurrent.futures.Executor,
        checked: concurrent.futures.Future | None,
    ) -> None:
        """Measures a program and the peer, and fills in the entry."""
        began = time.monotonic()
        program = Program.load(folder)
        entry.update(name=program.name, step=program.step, flops=program.flops)
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            setups = {"ours": ("emitted", self._setup(folder))}
            if self._options.peer_python:
                batch = os.path.join(scratch, "batch.npz")
                setups["peer"] = ("transformers", self._peer_setup(program, folder, batch))
            # Both compile at once, which takes most of the time.
            started = {name: pool.submit(self._start, *setup) for name, setup in setups.items()}
            contestants = {}
            for name, future in started.items():
                try:
                    contestants[name] = stack.enter_context(contextlib.closing(future.result()))
                except PeerError as error:
                    entry[name] = _described(error)
            if checked:
                checked.result()
            entry["start_seconds"] = time.monotonic() - began
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
            "masked_only": not self._options.peer_all_positions,
            "threads": os.cpu_count(),
            "device": self._options.device,
        }

    def _turns(self, program: Program, contestants: dict[str, Peer]) -> dict[str, Any]:
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        steps, losses = {}, {}
        for name, run in contestants.items():
            run(2)
            spent, _ = run(2)
            steps[name] = max(2, round(2 * self._options.turn_seconds / spent))
        for _ in range(self._options.turns):
            for name, run in contestants.items():
                spent, losses[name] = run(steps[name])
                seconds[name].append(spent / steps[name])
        found: dict[str, Any] = {}
        for name, run in contestants.items():
            found[name] = {
                "tokens_per_second": _spread([program.tokens / s for s in seconds[name]]),
                "step_seconds": _spread(seconds[name]),
                "steps_of_a_turn": steps[name],
                "last_loss": losses[name],
                "versions": run.versions,
                **run.facts(),
            }
        self._add_peak_shares(program, found)
        if len(found) == 2:
            pairs = zip(seconds["ours"], seconds["peer"])
            found["ratio"] = _spread([theirs / ours for ours, theirs in pairs])
        return found

    def _add_peak_shares(self, program: Program, found: dict[str, Any]) -> None:
        if "ours" not in found:
            return
        self.results["device"] = found["ours"]["device"]
        peak = peak_flops(found["ours"]["device"])
        if peak and program.step["precision"] == "mixed_bfloat16":
            self.results["peak_tflops"] = peak / 1e12
            for figures in found.values():
                rate = program.flops / figures["step_seconds"]["median"]
                figures["peak_share"] = rate / peak

    def _print(self) -> None:
        print(f"\n{self.results.get('device', 'no device')}")
        for entry in self.results["programs"]:
            print(_line(entry))
        for name in self.results["skipped"]:
            print(f"{name}: no time left")


def _described(error: Exception) -> dict[str, str]:
    output = getattr(error, "output", "")
    return {"error": f"{type(error).__name__}: {error}", **({"output": output} if output else {})}


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def _line(entry: dict[str, Any]) -> str:
    """Returns a program's figures in one line."""
    parts = []
    for name in ("ours", "peer"):
        figures = entry.get(name, {})
        if "error" in figures:
            parts.append(f"{name}: {figures['error'][:200]}")
        elif figures:
            rate = figures["tokens_per_second"]
            median, least, most = (f"{rate[k]:,.0f}" for k in ("median", "least", "most"))
            part = f"{name} {median} tokens/s ({least} … {most})"
            if "peak_share" in figures:
                part += f" {figures['peak_share']:.1%} of peak"
            memory = figures.get("peak_bytes") or figures.get("step_bytes")
            if memory:
                part += f" {memory / _GIB:.1f} GiB"
            parts.append(part)
    if "ratio" in entry:
        parts.append(f"ratio {entry['ratio']['median']:.2f}")
    if "error" in entry:
        parts.append(entry["error"][:200])
    return f"{entry['name']}: {'; '.join(parts)}"


def main(arguments: Sequence[str]) -> None:
    """Runs the command; exits with 1 unless the check passed and a program ran."""
    sys.exit(0 if Runner(parse_arguments(arguments)).run() else 1)
