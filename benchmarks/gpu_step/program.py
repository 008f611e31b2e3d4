# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Emitted programs: a folder with the HLO, what its parameters are, and batches.

A program maps (batch, state) to (metrics, new state). The state is the weights, both moments of
each and the step's number. `emit` writes the folders with TensorFlow; what runs them has only JAX
and NumPy, so this module imports nothing else.
"""

from __future__ import annotations

import dataclasses
import glob
import gzip
import io
import json
import os
import zlib
from typing import Any

import numpy as np

HLO_FILE, PROGRAM_FILE, BATCHES_FILE = "step.hlo.gz", "program.json", "batches.npz"
#: A state of step 0 with the weights that begin with other values than random ones.
INITIAL_FILE = "state-0.npz"
#: Besides the state: what the state was trained on.
FINGERPRINT = "data_fingerprint"
#: What a parameter is.
BATCH, WEIGHT, SLOT, STEP = KINDS = ("batch", "weight", "slot", "step")
_STATE = (WEIGHT, SLOT, STEP)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a program.

    Attributes:
      kind: one of KINDS.
      name: of the tensor in a batch, or the official name of a weight or slot.
      shape: of the array.
      dtype: NumPy's name.
      value: of a WEIGHT, the number that it is filled with at first, or None for random numbers;
        None for others.
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    value: Any = None

    @property
    def is_state(self) -> bool:
        """Whether a step replaces it."""
        return self.kind in _STATE


@dataclasses.dataclass(frozen=True)
class Program:
    """What program.json holds.

    Attributes:
      step: fields of benchmarks.step_programs.Step.
      config: keys of albert_config.json.
      schedule: arguments of the learning rate.
      flops: operations of a step by the model's own count.
      parameters: in the order of the program.
      metrics: names in the vector that is the first output.
      updates: for each further output, the number of the parameter that it replaces.
      seed: of the initial weights.
      stddev: of the initial weights that are random.
      reference: TensorFlow's figures for the first batches on the CPU: lists of the metrics by
        name, and "norms" of the state after them by name; empty if none were computed.
    """

    step: dict[str, Any]
    config: dict[str, Any]
    schedule: dict[str, float]
    flops: float
    parameters: tuple[Parameter, ...]
    metrics: tuple[str, ...]
    updates: tuple[int, ...]
    seed: int
    stddev: float
    reference: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model, the length and the rows, for tables."""
        model = os.path.splitext(os.path.basename(self.step["config"]))[0]
        return f"{model} {self.step['seq_length']}x{self.step['rows']}"

    @property
    def tokens(self) -> int:
        """Positions of a step's batch."""
        return self.step["rows"] * self.step["seq_length"]

    def of_kind(self, *kinds: str) -> list[Parameter]:
        """Returns the parameters of some kinds, in order."""
        return [parameter for parameter in self.parameters if parameter.kind in kinds]

    def state(self) -> list[Parameter]:
        """Returns the parameters that a step replaces, in order."""
        return [parameter for parameter in self.parameters if parameter.is_state]

    def save(self, folder: str, hlo: bytes, batches: list[dict[str, np.ndarray]]) -> None:
        """Writes the program, its HLO and batches into a new or existing folder."""
        os.makedirs(folder, exist_ok=True)
        with gzip.GzipFile(os.path.join(folder, HLO_FILE), "wb", mtime=0) as f:
            f.write(hlo)
        save_batches(os.path.join(folder, BATCHES_FILE), batches)
        with open(os.path.join(folder, PROGRAM_FILE), "w", encoding="utf-8") as f:
            json.dump(dataclasses.asdict(self), f, indent=1)

    @classmethod
    def load(cls, folder: str) -> Program:
        """Reads program.json."""
        with open(os.path.join(folder, PROGRAM_FILE), encoding="utf-8") as f:
            fields = json.load(f)
        fields["parameters"] = tuple(
            Parameter(**{**parameter, "shape": tuple(parameter["shape"])})
            for parameter in fields["parameters"]
        )
        for name in ("metrics", "updates"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


def read_hlo(folder: str) -> bytes:
    """Returns the serialized HloModuleProto."""
    with gzip.open(os.path.join(folder, HLO_FILE)) as f:
        return f.read()


def save_batches(path: str, batches: list[dict[str, np.ndarray]]) -> None:
    """Writes batches of one shape, stacked by name: [batches, rows, ...], as an .npz file."""
    columns = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    np.savez_compressed(path, **columns)


class Batches:
    """Batches of a file, in a program's types. Those after the last are the first ones again.

    Args:
      path: of a file that `save_batches` wrote.
      program: to feed.
    """

    def __init__(self, path: str, program: Program) -> None:
        self._dtypes = {p.name: p.dtype for p in program.of_kind(BATCH)}
        with np.load(path) as stored:
            self._columns = {name: stored[name] for name in self._dtypes}
        for parameter in program.of_kind(BATCH):
            shape = self._columns[parameter.name].shape[1:]
            if shape != parameter.shape:
                raise ValueError(f"{path}: {parameter.name} is {shape}, not {parameter.shape}.")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, number: int) -> dict[str, np.ndarray]:
        row = number % len(self)
        return {name: self._columns[name][row].astype(d) for name, d in self._dtypes.items()}


def initial_value(parameter: Parameter, seed: int, stddev: float) -> np.ndarray:
    """Returns what a parameter of the state is at first.

    Weights come from a generator of NumPy that the seed and the weight's name decide, so that both
    sides make them: normal with `stddev`, drawn again beyond two deviations. Slots are zero.
    """
    if parameter.kind in (SLOT, STEP):
        return np.zeros(parameter.shape, parameter.dtype)
    if parameter.value is not None:
        return np.full(parameter.shape, parameter.value, parameter.dtype)
    rng = np.random.default_rng([seed, zlib.crc32(parameter.name.encode())])
    values = rng.standard_normal(parameter.shape, np.float32)
    while (far := np.abs(values) > 2).any():
        values[far] = rng.standard_normal(int(far.sum()), np.float32)
    return (values * np.float32(stddev)).astype(parameter.dtype)


def save_state(path: str, state: dict[str, np.ndarray], part_bytes: int | None = None) -> None:
    """Writes arrays as an .npz file, which appears only when complete.

    With `part_bytes`, it is cut into parts of this size, path.part00 and so on.
    """
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as f:
        np.savez(f, **state)
    if not part_bytes:
        os.replace(temporary, path)
        return
    size = os.path.getsize(temporary)
    with open(temporary, "rb") as f:
        # The first part comes last: where it is, the others are.
        for number in reversed(range(-(-size // part_bytes))):
            f.seek(number * part_bytes)
            part = f"{path}.part{number:02d}"
            with open(f"{part}.tmp", "wb") as g:
                g.write(f.read(part_bytes))
            os.replace(f"{part}.tmp", part)
    os.remove(temporary)


def load_state(path: str) -> dict[str, np.ndarray]:
    """Reads what `save_state` wrote at a path, whole or in parts.

    Raises:
      FileNotFoundError: there is neither.
    """
    parts = [path] if os.path.exists(path) else sorted(glob.glob(f"{glob.escape(path)}.part??"))
    if not parts:
        raise FileNotFoundError(f"There is neither {path} nor {path}.part00.")
    content = io.BytesIO()
    for part in parts:
        with open(part, "rb") as f:
            content.write(f.read())
    content.seek(0)
    with np.load(content) as stored:
        return dict(stored)
