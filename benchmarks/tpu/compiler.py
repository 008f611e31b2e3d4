# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles an XLA program for a TPU that need not exist; runs in the compiler's environment.

  python benchmarks/tpu/compiler.py step.hlo v5e:2x2 [megacore]

Google's compiler for TPUs is part of the package libtpu, which `jax[tpu]` installs. The program is
a serialized HloModuleProto, as benchmarks/step_programs.py makes it. Prints one line of JSON: the
compiler's count of operations and the bytes of memory, or the sentence it refuses the program with.
Uses the standard library, JAX and NumPy only.
"""

from __future__ import annotations

import json
import os
import re
import sys
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
_PARTS = ("argument", "output", "alias", "temp", "generated_code")


def compile_for_tpu(path: str, topology: str, chip_config: str | None) -> dict[str, Any]:
    """Returns what the compiler says of a program; see the module."""
    extra = {"chip_config_name": chip_config} if chip_config else {}
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology, **extra)
    device = described.devices[0]
    with open(path, "rb") as f:
        text = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(f.read()))
    with mlir.make_ir_context():
        module = ir.Module.parse(_COPY.sub(r"stablehlo.convert \1 : \2", text))
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    versions = {"jax": jax.__version__, "device": device.device_kind}
    began = time.time()
    try:
        program = device.client.compile(module, _jax.DeviceList((device,)), options)
    except jax.errors.JaxRuntimeError as error:
        return {**versions, "seconds": time.time() - began, "error": str(error)[:2000]}
    cost, memory = program.cost_analysis(), program.get_compiled_memory_stats()
    cost = cost[0] if isinstance(cost, list) else cost
    return {
        **versions,
        "seconds": time.time() - began,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        **{f"{part}_bytes": getattr(memory, f"{part}_size_in_bytes") for part in _PARTS},
    }


if __name__ == "__main__":
    print(json.dumps(compile_for_tpu(*sys.argv[1:3], sys.argv[3] if len(sys.argv) > 3 else None)))
