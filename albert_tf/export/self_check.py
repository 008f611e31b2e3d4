# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that an export, loaded in a fresh process, has the model's outputs."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
#: Words, punctuation, accents, text without spaces, and numbers with commas, which ALBERT's
#: tokenizer treats specially.
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "In 2019, 1,234 naïve readers asked: why so many layers, and so few weights?",
    "Ada wrote the first program in 1843, in London; 子曰：「知之為知之。」 nobody ran it.",
)
QUESTIONS = ("Who jumps over the _ dog?", "How many readers?", "Who wrote it in 1843, and where?")
OPTIONS = ("fox", "the lazy dog", "1,234 readers", "nobody", "London")
_LONG = 40


@dataclasses.dataclass(frozen=True)
class Probe:
    """A call of an export, and its expected outputs.

    Attributes:
      inputs: arrays by name; strings as bytes.
      expected: the model's outputs by name; the entries of a list as name/0, name/1, … The export
        may have further outputs.
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
      `probes` `called`, the shapes of `inputs`, and `differences` by output: of strings and
      integers, the share that is not equal.

    Raises:
      AlbertError: it cannot be loaded or called, or its outputs differ.
    """
    largest, rows = 0.0, []
    for probe, found in zip(probes, _run(folder, probes)):
        called, differences = probe.attribute or "the model", {}
        for name, expected in probe.expected.items():
            is_float, is_exact = expected.dtype.kind == "f", tolerance <= TOLERANCE
            difference = _difference(found.get(name), expected, 1.0 if is_exact else _TINY)
            limit = tolerance if is_float else float(not is_exact)
            if not difference <= limit:  # Also of NaN.
                what = f"a difference of {difference:.2g}" if is_float else "other values"
                raise AlbertError(
                    f"The export's outputs differ from the model's: {called} has {what} in "
                    f"{name!r}; nothing was written."
                )
            largest = max(largest, difference) if is_float else largest
            differences[name] = difference
        shapes = {name: list(array.shape) for name, array in probe.inputs.items()}
        rows.append({"called": called, "inputs": shapes, "differences": differences})
    return {"tolerance": tolerance, "largest_difference": largest, "probes": rows}


def _difference(found: np.ndarray | None, expected: np.ndarray, least_scale: float) -> float:
    """Returns the largest difference of floats, or the share of others that is not equal.

    Floats are relative to the largest value, which counts as at least `least_scale`.
    """
    if found is None or found.shape != expected.shape:
        return math.inf
    if expected.dtype.kind != "f":
        return float(np.mean(found != expected))
    scale = float(np.abs(expected).max(initial=least_scale))
    return float(np.abs(found - expected).max(initial=0.0)) / scale


def _run(folder: str, probes: Sequence[Probe]) -> list[dict[str, np.ndarray]]:
    """Returns the outputs of each call."""
    with tempfile.TemporaryDirectory() as work:
        calls, outputs = (os.path.join(work, name) for name in ("calls.npz", "outputs.npz"))
        inputs = {
            f"{number}/{probe.attribute}/{name}": array
            for number, probe in enumerate(probes)
            for name, array in probe.inputs.items()
        }
        np.savez(calls, **inputs)
        # The process has another working directory, and may be unable to read remote file systems.
        local = os.path.abspath(folder)
        if "://" in folder:
            local = os.path.join(work, "model")
            folders.copy_folder(folder, local)
        done = subprocess.run(
            [sys.executable, probe_process.__file__, local, calls, outputs],
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
        found: list[dict[str, np.ndarray]] = [{} for _ in probes]
        with np.load(outputs) as saved:
            for key, array in saved.items():
                number, _, name = key.partition("/")
                found[int(number)][name] = array
        return found


def text_batches() -> Iterator[list[str]]:
    """Yields batches of one and of three texts, of one sentence and of many."""
    for size in (1, len(SENTENCES)):
        yield list(SENTENCES[:size])
        # Numbered, because windows with the same text would have equal scores.
        yield [" ".join(f"{number} {text}" for number in range(_LONG)) for text in SENTENCES[:size]]


def as_bytes(texts: Sequence[str]) -> np.ndarray:
    """Returns texts as an array of UTF-8 strings."""
    return np.array([text.encode() for text in texts])
