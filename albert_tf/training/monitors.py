# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run leaves to look at: metrics.jsonl and TensorBoard events."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.io import files
from albert_tf.io.json_values import JSON_ERRORS, finite_only

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """metrics.jsonl and TensorBoard events of one output directory.

    Args:
      output_dir: the run's folder.
      step: the step the run goes on from; later entries of an interrupted run are dropped, as
        their steps are run again.
    """

    def __init__(self, output_dir: str, step: int) -> None:
        self._path = os.path.join(output_dir, METRICS_FILE)
        lines = []
        if tf.io.gfile.exists(self._path):
            lines = files.read_bytes(self._path).splitlines()
            entries = [_entry(line) for line in lines]
            damaged = entries[:-1].count(None)  # The last one may have been cut off by a crash.
            if damaged:
                print(f"{self._path} has {damaged} damaged lines; they are dropped.")
            lines = [line for line, entry in zip(lines, entries) if entry and entry["step"] <= step]
        files.write_bytes(self._path, b"".join(line + b"\n" for line in lines))
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._events = os.path.join(output_dir, "events")

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Appends {"step", "split", …values}; numbers that are not finite become null."""
        entry = {"step": step, "split": split, **finite_only(values)}
        with files.space_for(f"the metrics of step {step}, in {self._path} and {self._events}"):
            with tf.io.gfile.GFile(self._path, "a") as f:
                f.write(json.dumps(entry) + "\n")
            writer = self._writer(split)
            with writer.as_default():
                for name, value in values.items():
                    tf.summary.scalar(name, value, step=step)
                writer.flush()

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        """Shows JSON values under a name among TensorBoard's texts, at step 0."""
        text = json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False)
        with files.space_for(f"the description of {name}, in {self._events}"):
            writer = self._writer("train")
            with writer.as_default():
                tf.summary.text(name, f"```json\n{text}\n```", step=0)
                writer.flush()

    def _writer(self, split: str) -> tf.summary.SummaryWriter:
        if split not in self._writers:
            folder = os.path.join(self._events, split)
            self._writers[split] = tf.summary.create_file_writer(folder)
        return self._writers[split]

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()


class MetricsWindow:
    """Means and rates of the steps since the last log entry.

    Args:
      batch_size: examples of a step.
      flops: operations of training on one example, a function of its positions.
    """

    def __init__(self, batch_size: int, flops: Callable[[float], float]) -> None:
        self._batch_size, self._flops = batch_size, flops
        self.clear()

    def clear(self) -> None:
        """Begins anew."""
        self._metrics: list[dict[str, np.ndarray]] = []
        self._steps, self._seconds, self._tokens, self._waited = 0, 0.0, 0.0, 0.0

    def add(self, metrics: dict[str, np.ndarray], seconds: float | None) -> None:
        """Adds the steps of one call of `TrainLoop.run`; the time it took counts unless None."""
        self._metrics.append(metrics)
        if seconds is not None:
            self._steps += len(metrics["finite"])
            self._seconds += seconds
            self._tokens += float(np.sum(metrics["tokens"]))
            self._waited += float(np.sum(metrics["input_wait"]))

    def means(self) -> dict[str, float]:
        """The means by name over the finite steps, the last learning rate, and the rates."""
        columns = {k: np.concatenate([m[k] for m in self._metrics]) for k in self._metrics[0]}
        finite = columns.pop("finite") > 0
        del columns["input_wait"]
        tokens, positions = columns.pop("tokens"), columns.pop("positions")
        means = {
            k: float(np.mean(v[finite])) if finite.any() else float("nan")
            for k, v in columns.items()
        }
        means["learning_rate"] = float(columns["learning_rate"][-1])
        means["padding_share"] = 1.0 - float(tokens.sum() / positions.sum())
        if self._seconds:
            means["examples_per_second"] = self._steps * self._batch_size / self._seconds
            means["tokens_per_second"] = self._tokens / self._seconds
            means["input_wait_share"] = self._waited / self._seconds
            flops = self._flops(float(positions.mean()) / self._batch_size)
            if flops:
                means["model_flops_per_second"] = means["examples_per_second"] * flops
        return means


class InputWatch:
    """Notices that training waits for its input; warns once a run."""

    #: A larger share of the time, in this many logged periods in a row, is worth a word.
    _SHARE = 0.1
    _PERIODS = 2

    def __init__(self) -> None:
        self._in_a_row, self._warned = 0, False

    def update(self, step: int, share: float) -> str | None:
        """Takes the share of the time before `step` that was spent waiting; gives a warning."""
        self._in_a_row = self._in_a_row + 1 if share > self._SHARE else 0
        if self._warned or self._in_a_row < self._PERIODS:
            return None
        self._warned = True
        return (
            f"Warning: before step {step}, {share:.0%} of the time went to waiting for input. Put "
            "the records on a local disk, or leave more processor cores to this program."
        )


def read_metrics(output_dir: str) -> list[dict[str, Any]]:
    """The entries of metrics.jsonl, as `MetricsLog.write` describes them; without damaged ones.

    Raises:
      AlbertError: there is no such file.
    """
    data = files.read_bytes(os.path.join(output_dir, METRICS_FILE), "metrics file")
    return [entry for entry in map(_entry, data.splitlines()) if entry]


def is_logged(output_dir: str, step: int, split: str) -> bool:
    """Whether metrics.jsonl has an entry of `split` at `step`; it need not exist."""
    if not tf.io.gfile.exists(os.path.join(output_dir, METRICS_FILE)):
        return False
    entries = read_metrics(output_dir)
    return any(entry["step"] == step and entry.get("split") == split for entry in entries)


def _entry(line: bytes) -> dict[str, Any] | None:
    """An entry; None if it is damaged."""
    try:
        entry = json.loads(line)
    except JSON_ERRORS:
        return None
    intact = isinstance(entry, dict) and isinstance(entry.get("step"), int)
    return entry if intact else None


def short_rate(value: float) -> str:
    """A rate in at most five characters: 987, 12.3k, 4.56M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
