# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles an XLA program for TPUs that need not exist; runs in the compiler's environment.

  python benchmarks/tpu/compiler.py step.hlo --topology=v5e:2x2

Google's compiler for TPUs is part of the package libtpu, which `jax[tpu]` installs. The program is
a serialized HloModuleProto, as benchmarks/step_programs.py makes it. Prints one line of JSON: the
compiler's counts and the bytes of memory, or the sentence it refuses the program with. Uses the
standard library, JAX and NumPy only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import time
from collections.abc import Callable
from typing import Any

# Without a TPU, these keep JAX from looking for one and libtpu from asking for the machine's.
os.environ.update(
    JAX_PLATFORMS="cpu",
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v5litepod-4",
    TPU_WORKER_HOSTNAMES="localhost",
)

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax.experimental import topologies
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir

#: TensorFlow copies each output; the TPU's compiler does not know the operation by this name.
_COPY = re.compile(r"mhlo\.copy (%[\w#]+) : (tensor<[^>]*>)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_PARTS = ("argument", "output", "alias", "temp", "generated_code")


def parser(program: str) -> argparse.ArgumentParser:
    """Returns a parser of a program and of the devices to compile it for.

    Args:
      program: what the first argument is.
    """
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program", help=program)
    arguments.add_argument("--topology", required=True, help="A slice, such as v5e:2x2.")
    arguments.add_argument("--chip_config", help="megacore: both cores of a chip are one device.")
    arguments.add_argument("--replicas", type=int, default=1, help="Devices of the program.")
    arguments.add_argument("--keep", help="File for the text of the compiled program, .gz.")
    return arguments


def devices(options: argparse.Namespace) -> list[Any]:
    """Returns descriptions of the devices that a program runs on."""
    extra = {"chip_config_name": options.chip_config} if options.chip_config else {}
    described = topologies.get_topology_desc(
        platform="tpu", topology_name=options.topology, **extra
    )
    return list(described.devices[: options.replicas])


def described(compile_program: Callable[[], Any], options: argparse.Namespace) -> dict[str, Any]:
    """Compiles a program; returns what the compiler says of it.

    Args:
      compile_program: returns the client's executable.
      options: of `parser`.
    """
    began = time.time()
    versions = {"jax": jax.__version__, "device": devices(options)[0].device_kind}
    try:
        program = compile_program()
    except jax.errors.JaxRuntimeError as error:
        return {**versions, "seconds": time.time() - began, "error": str(error)[:2000]}
    text = program.hlo_modules()[0].to_string()
    if options.keep:
        with gzip.open(options.keep, "wt", encoding="utf-8") as f:
            f.write(text)
    cost, memory = program.cost_analysis(), program.get_compiled_memory_stats()
    cost = cost[0] if isinstance(cost, list) else cost
    # Of the main computation: the bodies of loops are not in it.
    cycles = sum(map(int, _CYCLES.findall(text[text.index("\nENTRY ") :])))
    return {
        **versions,
        "seconds": time.time() - began,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "entry_cycles": cycles,
        "peak_bytes": memory.peak_memory_in_bytes,
        **{f"{part}_bytes": getattr(memory, f"{part}_size_in_bytes") for part in _PARTS},
    }


def compile_hlo(options: argparse.Namespace) -> Any:
    """Returns the executable of a serialized program that replicas run together."""
    chosen = devices(options)
    with open(options.program, "rb") as f:
        text = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(f.read()))
    with mlir.make_ir_context():
        module = ir.Module.parse(_COPY.sub(r"stablehlo.convert \1 : \2", text))
    compile_options = xla_client.CompileOptions()
    compile_options.num_replicas, compile_options.num_partitions = len(chosen), 1
    compile_options.device_assignment = xla_client.DeviceAssignment.create(
        np.array([[device.id] for device in chosen])
    )
    return chosen[0].client.compile(module, _jax.DeviceList(tuple(chosen)), compile_options)


if __name__ == "__main__":
    OPTIONS = parser("A serialized HloModuleProto.").parse_args()
    print(json.dumps(described(lambda: compile_hlo(OPTIONS), OPTIONS)))
