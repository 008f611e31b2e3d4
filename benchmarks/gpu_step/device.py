# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A program on a device, through JAX's client. Imports JAX and NumPy only."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

# Another library shares the card, so memory is taken as it is needed.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir

from benchmarks.gpu_step.program import BATCH, Program, initial_value

# The step's number is a 64-bit integer.
jax.config.update("jax_enable_x64", True)

#: Operations of TensorFlow's that change nothing, each with its value and type: it copies every
#: output, which compilers of devices do not know by this name, and asserts static shapes.
_COPY = re.compile(r"mhlo\.copy (%[\w#]+) : (tensor<[^>]*>)")
_ASSERTED = re.compile(
    r"stablehlo\.set_dimension_size (%[\w#]+), %[\w#]+, dim = \d+ : "
    r"\((tensor<[^>]*>), tensor<i32>\) -> \2(?=\s)"
)
_PARTS = ("argument", "output", "alias", "temp", "generated_code")


class DeviceStep:
    """A compiled program and its state, which stays on the device.

    A step takes over the memory of the state that it is given, so there is never a second copy of
    weights and slots: the program says which output replaces which parameter, and the runtime
    deletes those parameters as it runs.

    `load` must be called before the first step.

    Args:
      program: to run.
      hlo: its serialized HloModuleProto.

    Attributes:
      compile_seconds: what compiling took.
    """

    def __init__(self, program: Program, hlo: bytes) -> None:
        self.program = program
        self.device = jax.devices()[0]
        began = time.perf_counter()
        self._executable = compile_program(hlo, self.device)
        self.compile_seconds = time.perf_counter() - began
        self._values: list[jax.Array | None] = []

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Copies a state to the device.

        Args:
          state: arrays by name; what it lacks gets the program's initial values.

        Raises:
          ValueError: an array has another shape or type than the program's.
        """
        values: list[jax.Array | None] = []
        for parameter in self.program.parameters:
            if parameter.kind == BATCH:
                values.append(None)
                continue
            if parameter.is_state and parameter.name in state:
                value = state[parameter.name]
                if value.shape != parameter.shape or value.dtype != parameter.dtype:
                    raise ValueError(
                        f"{parameter.name} is {value.dtype}{list(value.shape)}, not "
                        f"{parameter.dtype}{list(parameter.shape)}."
                    )
            else:
                value = initial_value(parameter, self.program.seed, self.program.stddev)
            values.append(self._put(value))
        self._values = values

    def _put(self, value: np.ndarray) -> jax.Array:
        # The CPU's client may use NumPy's own memory, which a step must not overwrite.
        return jax.device_put(np.array(value), self.device)

    def put(self, batch: Mapping[str, np.ndarray]) -> list[jax.Array]:
        """Copies a batch to the device; returns the program's first parameters."""
        return [self._put(batch[parameter.name]) for parameter in self.program.of_kind(BATCH)]

    def __call__(self, batch: list[jax.Array]) -> jax.Array:
        """Starts a step.

        Args:
          batch: as `put` returns it.

        Returns:
          the metrics, float32 [metrics], not waited for.
        """
        arguments = [*batch, *self._values[len(batch) :]]
        results = self._executable.execute_sharded(arguments)
        metrics, *state = (x[0] for x in results.disassemble_into_single_device_arrays())
        for number, value in zip(self.program.updates, state):
            self._values[number] = value
        return metrics

    def state(self) -> dict[str, np.ndarray]:
        """Copies the state from the device: arrays by name."""
        return {
            parameter.name: np.asarray(value)
            for parameter, value in zip(self.program.parameters, self._values)
            if parameter.is_state
        }

    def memory(self) -> dict[str, int | None]:
        """Returns bytes: by the compiler, what a step needs; by the runtime, the peak so far."""
        peak = (self.device.memory_stats() or {}).get("peak_bytes_in_use")
        return {**memory_of(self._executable), "peak_bytes": peak}


def compile_program(hlo: bytes, device: Any, load: bool = True) -> Any:
    """Compiles a program for one device.

    Args:
      hlo: the serialized HloModuleProto.
      device: of JAX.
      load: make it ready to run; False for a device that is only described.

    Returns:
      the client's executable.
    """
    text = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(hlo))
    for pattern in (_COPY, _ASSERTED):
        text = pattern.sub(r"stablehlo.convert \1 : \2", text)
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
    options = compiler.get_compile_options(
        1,
        1,
        device_assignment=np.array([[device.id]]),
        # To tune, the compiler would run kernels.
        env_options_overrides=None if load else {"xla_gpu_autotune_level": "0"},
    )
    compile_with = device.client.compile_and_load if load else device.client.compile
    return compile_with(module, _jax.DeviceList((device,)), options)


def memory_of(executable: Any) -> dict[str, int]:
    """Returns the bytes of a program's parts, and "step_bytes", what a step needs in all."""
    stats = executable.get_compiled_memory_stats()
    parts = {f"{part}_bytes": getattr(stats, f"{part}_size_in_bytes") for part in _PARTS}
    # Outputs in the memory of arguments are counted with both.
    return {**parts, "step_bytes": sum(parts.values()) - 2 * parts["alias_bytes"]}


def use(platform: str) -> None:
    """Chooses the device: "cuda" or "cpu". A missing one is an error when it is first used."""
    jax.config.update("jax_platforms", platform)


def versions() -> dict[str, str]:
    """Returns the versions that figures depend on, and the device's kind."""
    device = jax.devices()[0]
    return {
        "jax": jax.__version__,
        "numpy": np.__version__,
        "platform": device.client.platform_version.splitlines()[0],
        "device": device.device_kind,
    }
