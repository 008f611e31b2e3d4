# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that an export, loaded in a fresh process, has the model's outputs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.export import probe_process
from albert_tf.io import files, folders

#: The report, beside the model.
REPORT_FILE = "self_check.json"
#: Largest difference, relative to an output's largest value, or to 1 if that is smaller.
TOLERANCE = 1e-4
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
    """A call of a SavedModel, and its expected outputs.

    Attributes:
      inputs: arrays by name; strings as bytes.
      expected: the model's outputs by name; the entries of a list as name/0, name/1, … The
        SavedModel may have further outputs.
      attribute: the root's attribute to call; "" for the root itself.
      length: of the inputs, with its unit, for the report.
    """

    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    attribute: str = ""
    length: str = ""


def self_check(
    folder: str, probes: Sequence[Probe], tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """Loads a SavedModel in a fresh process with tensorflow_hub, and compares its outputs.

    Floats may differ by the tolerance. Strings and integers must be equal, unless the tolerance is
    larger than TOLERANCE: then labels and answers of almost the same score may change places.

    Returns:
      The report, as JSON values: `versions`, `tolerance`, and for each of `probes` `called`,
      `batch_size`, `length`, `largest_difference` by output and, of strings and integers that need
      not be equal, `equal`, the share of those that are.

    Raises:
      AlbertError: it cannot be loaded or called, or its outputs differ.
    """
    outputs, versions = _run(folder, probes)
    rows = []
    for number, probe in enumerate(probes):
        called = probe.attribute or "the model"
        differences, equal = {}, {}
        for name, expected in probe.expected.items():
            found = outputs.get(f"{number}/{name}")
            exact = tolerance <= TOLERANCE or expected.dtype.kind == "f"
            if not exact and found is not None and found.shape == expected.shape:
                equal[name] = float(np.mean(found == expected))
                continue
            difference = _difference(found, expected)
            if difference is None or not difference <= tolerance:
                what = "other values" if difference is None else f"a difference of {difference:.2g}"
                raise AlbertError(
                    f"The SavedModel's outputs differ from the model's: {called} has {what} in "
                    f"{name!r}; nothing was written."
                )
            differences[name] = difference
        rows.append(
            {
                "called": called,
                "batch_size": len(next(iter(probe.inputs.values()))),
                "length": probe.length,
                "largest_difference": differences,
                **({"equal": equal} if equal else {}),
            }
        )
    return {"versions": versions, "tolerance": tolerance, "probes": rows}


def _difference(found: np.ndarray | None, expected: np.ndarray) -> float | None:
    """Returns the largest difference; None for other shapes, strings, integers."""
    if found is None or found.shape != expected.shape:
        return None
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else None
    scale = float(np.abs(expected).max(initial=1.0))
    return float(np.abs(found - expected).max(initial=0.0)) / scale


def _run(folder: str, probes: Sequence[Probe]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Returns the outputs of all calls as number/name, and the versions of the libraries."""
    with tempfile.TemporaryDirectory() as work:
        calls = [{"attribute": p.attribute, "inputs": list(p.inputs)} for p in probes]
        files.write_json(os.path.join(work, "calls.json"), calls)
        inputs = {f"{i}/{name}": a for i, p in enumerate(probes) for name, a in p.inputs.items()}
        np.savez(os.path.join(work, "inputs.npz"), **inputs)
        # The process has another working directory, and may be unable to read remote file systems.
        local = os.path.abspath(folder)
        if "://" in folder:
            local = os.path.join(work, "model")
            folders.copy_folder(folder, local)
        done = subprocess.run(
            [sys.executable, probe_process.__file__, local, work],
            cwd=work,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
            raise AlbertError(
                f"The SavedModel cannot be used in a fresh process ({reason}); nothing was written."
            )
        with np.load(os.path.join(work, "outputs.npz")) as arrays:
            outputs = dict(arrays.items())
        with open(os.path.join(work, "versions.json"), encoding="utf-8") as f:
            return outputs, json.load(f)


def text_batches() -> Iterator[tuple[str, list[str]]]:
    """Yields batches of one and of three texts, of one sentence and of many, with their length."""
    for size in (1, len(SENTENCES)):
        yield "a sentence", list(SENTENCES[:size])
        # Numbered, because windows with the same text would have equal scores.
        yield (
            f"{_LONG} sentences",
            [" ".join(f"{number} {text}" for number in range(_LONG)) for text in SENTENCES[:size]],
        )


def as_bytes(texts: Sequence[str]) -> np.ndarray:
    """Returns texts as an array of UTF-8 strings."""
    return np.array([text.encode() for text in texts])
