# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles emitted programs for a GPU that the machine does not have.

Needs an environment with JAX's plugin for CUDA (see benchmarks/README.md), but no GPU. Prints one
line of JSON for each program: GiB of the state, of temporaries and in total, the number of kernels
and the GiB that they read and write, or the error. Kernels are not tuned, because that needs a GPU,
so a real run may use other kernels and somewhat more or less memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu_step.cards import CARDS, target_config
from benchmarks.gpu_step.program import PROGRAM_FILE, read_hlo
from benchmarks.gpu_step.traffic import of_hlo

_GIB = 2**30


def compile_for(card: str, folder: str) -> dict[str, Any]:
    """Returns what the compiler says of the program in a folder."""
    import jax
    from jax.experimental import topologies

    from benchmarks.gpu_step.device import compile_program, memory_of, use

    use("cpu")
    described = topologies.get_topology_desc(
        topology_name="", platform="cuda", topology="1x1x1", target_config=target_config(card)
    )
    began = time.perf_counter()
    try:
        executable = compile_program(read_hlo(folder), described.devices[0], load=False)
    except jax.errors.JaxRuntimeError as error:
        return {"error": str(error)[:2000]}
    memory = memory_of(executable)
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "state_gib": memory["alias_bytes"] / _GIB,
        "temporaries_gib": memory["temp_bytes"] / _GIB,
        "step_gib": memory["step_bytes"] / _GIB,
        **of_hlo(executable.hlo_modules()[0].to_string()),
    }


def main(arguments: Sequence[str]) -> None:
    """Runs the command; exits with 1 if a program is refused."""
    parser = argparse.ArgumentParser(
        "python3 -m benchmarks.gpu_step compile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", required=True, help="Folder that `emit` wrote.")
    parser.add_argument("--card", default="h100", choices=list(CARDS))
    options = parser.parse_args(arguments)
    refused = False
    for name in sorted(os.listdir(options.programs)):
        folder = os.path.join(options.programs, name)
        if os.path.exists(os.path.join(folder, PROGRAM_FILE)):
            found = compile_for(options.card, folder)
            refused |= "error" in found
            print(json.dumps({"program": name, "card": options.card, **found}), flush=True)
    sys.exit(int(refused))
