# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that an export, loaded in a fresh process, has the model's outputs."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.export import probe_process
from albert_tf.io import folders

#: The report, beside the model.
REPORT_FILE = "self_check.json"
#: Largest difference of exact exports, relative to an output's largest value, or to 1 if that is
#: smaller.
TOLERANCE = 1e-4
#: In others the largest value decides, however small it is.
_TINY = float(np.finfo(np.float32).tiny)


class Probe(NamedTuple):
    """A call of an export, and its expected outputs.

    Attributes:
      inputs: arrays by name; strings as bytes.
      expected: the model's outputs by name, see `probe_process.arrays`; those that may differ
        are masked. The export may have further outputs.
      attribute: the attribute of the SavedModel's root to call; "" for the root itself.
    """

    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    attribute: str = ""


def self_check(
    folder: str, probes: Sequence[Probe], tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """Loads an export in a fresh process, and compares its outputs.

    Floats may differ by the tolerance. Strings and integers must be equal, unless the tolerance is
    larger than TOLERANCE: then labels and answers of almost the same score may change places.

    Returns:
      The report, as JSON values: `tolerance`, `largest_difference` of floats, and for each of
      `probes` `called`, and `differences` by output: of strings and integers, the share that is
      not equal.

    Raises:
      AlbertError: it cannot be loaded or called, or its outputs differ.
    """
    largest, rows, is_exact = 0.0, [], tolerance <= TOLERANCE
    for probe, found in zip(probes, _run(folder, probes)):
        called, differences = probe.attribute or "the model", {}
        for name, expected in probe.expected.items():
            is_float = expected.dtype.kind == "f"
            difference = _difference(found.get(name), expected, is_exact)
            limit = tolerance if is_float else float(not is_exact)
            if not difference <= limit:  # Also of NaN.
                what = f"a difference of {difference:.2g}" if is_float else "other values"
                raise AlbertError(
                    f"The export's outputs differ from the model's: {called} has {what} in "
                    f"{name!r}; nothing was written."
                )
            largest = max(largest, difference) if is_float else largest
            differences[name] = difference
        rows.append({"called": called, "differences": differences})
    return {"tolerance": tolerance, "largest_difference": largest, "probes": rows}


def _difference(found: np.ndarray | None, expected: np.ndarray, is_exact: bool) -> float:
    """Returns the largest difference of floats, or the share of others that is not equal.

    Floats are relative to the largest value, which counts as at least 1 if the comparison is exact.
    If not, there may be another number of entities in a text, whose scores are not compared.
    """
    if found is None or found.ndim != expected.ndim or len(found) != len(expected):
        return math.inf
    if found.shape != expected.shape:
        return math.inf if is_exact else float(expected.dtype.kind != "f")
    if expected.dtype.kind != "f":
        return float(np.ma.filled(found != expected, False).mean())
    scale = float(np.abs(expected).max(initial=1.0 if is_exact else _TINY))
    return float(np.abs(found - expected).max(initial=0.0)) / scale


def _run(folder: str, probes: Sequence[Probe]) -> list[dict[str, np.ndarray]]:
    """Returns the outputs of each call."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as calls:
        paths = [f"{calls}/{number}-{probe.attribute}.npz" for number, probe in enumerate(probes)]
        for path, probe in zip(paths, probes):
            np.savez(path, **probe.inputs)
        # The process has another working directory, and may be unable to read remote file systems.
        local = os.path.abspath(folder)
        if "://" in folder:
            local = os.path.join(work, "model")
            folders.copy_folder(folder, local)
        done = subprocess.run(
            [sys.executable, probe_process.__file__, local, calls],
            cwd=work,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
            raise AlbertError(
                f"The export cannot be used in a fresh process ({reason}); nothing was written."
            )
        return [{**np.load(path)} for path in paths]
