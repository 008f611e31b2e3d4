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
import json
import os
import re
import time
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


def described(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles a program for one device; returns what the compiler says of it."""
    began = time.time()
    extra = {"chip_config_name": options.chip_config} if options.chip_config else {}
    slice_of = topologies.get_topology_desc(platform="tpu", topology_name=options.topology, **extra)
    device = slice_of.devices[0]
    versions = {"jax": jax.__version__, "device": device.device_kind}
    try:
        program = compile_hlo(options.program, device)
    except jax.errors.JaxRuntimeError as error:
        return {**versions, "seconds": time.time() - began, "error": str(error)[:2000]}
    text = program.hlo_modules()[0].to_string()
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


def compile_hlo(path: str, device: Any) -> Any:
    """Returns the executable of a serialized program for one device."""
    with open(path, "rb") as f:
        text = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(f.read()))
    with mlir.make_ir_context():
        module = ir.Module.parse(_COPY.sub(r"stablehlo.convert \1 : \2", text))
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    return device.client.compile(module, _jax.DeviceList((device,)), options)


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("program", help="A serialized HloModuleProto.")
    PARSER.add_argument("--topology", required=True, help="A slice, such as v5e:2x2.")
    PARSER.add_argument("--chip_config", help="megacore: both cores of a chip are one device.")
    print(json.dumps(described(PARSER.parse_args())))
