# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""This project's training step as an emitted program, run by JAX's client. See protocol.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu_step.device import DeviceStep, use, versions
from benchmarks.gpu_step.program import BATCHES_FILE, Batches, Program, read_hlo
from benchmarks.peers import protocol

_facts: dict[str, Any] = {}
#: Filled in by `build`: what changes while steps are made.
_memory: list[Callable[[], dict[str, Any]]] = []


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Compiles the program in the folder setup["program"] for the device setup["device"].

    With setup["reference"], first makes the steps that TensorFlow made when it was emitted, for
    `facts` to compare.
    """
    use(setup["device"])
    folder = setup["program"]
    program = Program.load(folder)
    step = DeviceStep(program, read_hlo(folder))
    step.load({})
    stored = Batches(os.path.join(folder, BATCHES_FILE), program)
    batches = [step.put(stored[i]) for i in range(len(stored))]
    loss = program.metrics.index("loss")
    made, first_losses = 0, []

    def metrics(steps: int) -> list[np.ndarray]:
        nonlocal made
        vectors = [step(batches[(made + i) % len(batches)]) for i in range(steps)]
        made += steps
        return vectors

    def run(steps: int) -> float:
        return float(np.asarray(metrics(steps)[-1])[loss])

    _facts.update(versions(), compile_seconds=step.compile_seconds, flops=program.flops)
    if setup.get("reference"):
        count = len(program.reference["metrics"]["loss"])
        vectors = np.stack([np.asarray(vector) for vector in metrics(count)])
        found = dict(zip(program.metrics, vectors.T.astype(float)))
        _facts["check"] = compare(program, found, step.state())
    else:
        first_losses += [run(1) for _ in batches]
        _facts["first_losses"] = first_losses
    _memory.append(step.memory)
    return run


def compare(
    program: Program, found: dict[str, np.ndarray], state: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Compares the metrics of the first steps, and the state after them, with TensorFlow's.

    Returns:
      both lists of losses, the largest difference of a loss, the largest of a gradient's norm as a
      share, and of the norms of weights and slots the share that differs by 10 % at most.
    """
    expected = {name: np.array(values) for name, values in program.reference["metrics"].items()}
    differences = {
        name: abs(float(np.linalg.norm(state[name].astype(np.float64))) - norm) / (norm or 1.0)
        for name, norm in program.reference["norms"].items()
    }
    return {
        "tensorflow": program.reference["tensorflow"],
        "losses": found["loss"].tolist(),
        "tensorflow_losses": expected["loss"].tolist(),
        "loss_difference": float(np.abs(found["loss"] - expected["loss"]).max()),
        "gradient_norm_difference": float(
            np.abs(found["gradient_norm"] / expected["gradient_norm"] - 1).max()
        ),
        "norms_alike": float(np.mean([d <= 0.1 for d in differences.values()])),
    }


def facts() -> dict[str, Any]:
    """Returns versions, the time to compile, the comparison, and memory so far."""
    return {**_facts, **_memory[0]()}


if __name__ == "__main__":
    protocol.serve(build, ("jax", "jaxlib", "numpy"), facts)
