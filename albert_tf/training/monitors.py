# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports a run: progress on the terminal, metrics.jsonl, TensorBoard events, eval_results.json."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError, DivergedError, first_line
from albert_tf.io import files, storage
from albert_tf.io.json_values import JSON_ERRORS, finite_only, joined
from albert_tf.io.log import log
from albert_tf.io.progress import Progress
from albert_tf.training.specs import RunConfig
from albert_tf.training.task import Arrays, Metrics, Task
from albert_tf.weights.run_folder import METRICS_FILE, RESULTS_FILE, RunFolder


class MetricsLog:
    """metrics.jsonl and TensorBoard events of a run that continues at `step`.

    Later entries of an interrupted run are dropped, as their steps are repeated, and so are lines
    that a crash has cut off.
    """

    def __init__(self, folder: RunFolder, step: int) -> None:
        self._path, self._events = folder.file(METRICS_FILE), folder.file("events")
        self._writers = {}  # Of TensorBoard events, by split.
        lines = files.read_bytes(self._path).splitlines() if folder.has(METRICS_FILE) else []
        kept = (line for line in lines if (entry := _entry(line)) and entry["step"] <= step)
        self._written = bytearray(b"".join(line + b"\n" for line in kept))
        files.write_bytes(self._path, bytes(self._written))

    def write(self, step: int, split: str, values: Metrics) -> None:
        """Appends {"step", "split", …values}; numbers that are not finite are written as null."""
        entry = {"step": step, "split": split, **finite_only(values)}
        place = f"the metrics of step {step}, in {self._path}"
        try:
            with files.space_for(place):
                self._append(json.dumps(entry).encode() + b"\n")
                storage.retried(self._write_events, step, split, values)
        except tf.errors.OpError as error:
            raise AlbertError(
                f"Cannot write {place} ({first_line(error)}). Was the folder deleted?"
            ) from error

    def _append(self, line: bytes) -> None:
        self._written += line
        try:
            with tf.io.gfile.GFile(self._path, "ab") as f:
                f.write(line)
        except tf.errors.OpError as error:
            if not storage.may_pass(error):
                raise
            # Nobody knows how much of it was written.
            files.write_bytes(self._path, bytes(self._written))

    def _write_events(self, step: int, split: str, values: Metrics) -> None:
        if split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(f"{self._events}/{split}")
        with self._writers[split].as_default():  # At its end it writes.
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()


class RunMonitor:
    """Shows and logs a training: progress, metrics.jsonl, TensorBoard events, warnings.

    Workers other than the chief log nothing: their `folder` is None. For `step` see MetricsLog.
    """

    def __init__(
        self, task: Task, config: RunConfig, max_steps: int, step: int, folder: RunFolder | None
    ) -> None:
        self._task, self._config, self._max_steps = task, config, max_steps
        self._log = MetricsLog(folder, step) if folder else None
        self._progress = Progress("train", max_steps, "steps", step)
        self._metrics = []  # Of the steps since the last entry of the log, by calls of the loop.

    def close(self) -> None:
        """Closes the progress line and the event files."""
        self._progress.close()
        if self._log:
            self._log.close()

    def note(self, text: str) -> None:
        """Prints a text above the progress line."""
        self._progress.note(text)

    def trained(self, step: int, metrics: Arrays, seconds: float | None, skipped: int) -> None:
        """Reports a call of `TrainLoop.run`, the last step of which is `step`.

        `seconds` is how long it took; None if it also traced and compiled, and so does not count.
        `skipped` steps of the whole run were not finite.
        """
        steps = len(metrics["finite"])
        last = step == self._max_steps
        took = math.nan if seconds is None else seconds / steps
        self._metrics.append({**metrics, "seconds": np.full(steps, took)})
        if bad := np.sum(metrics["finite"] == 0):
            reason = "loss or gradient not finite"
            if (overflowed := metrics.get("overflowed", np.zeros(steps)) > 0).any():
                scale = metrics["loss_scale"][overflowed][-1] / 2
                reason = f"gradient too large for float16; the loss scale is now {scale:,.0f}"
            self.note(f"step {step}: {bad} step(s) skipped, {reason} ({skipped} in all)")
        means = self._means()
        rate = f"{means['learning_rate']:.1e}".replace("e-0", "e-")
        text = f"{self._task.progress(means)} lr {rate}"
        if "tokens_per_second" in means:
            text += f" {Progress.format_sizeof(means['tokens_per_second'])} tok/s"
        shown = self._progress.update(steps, text)
        if (last or seconds is None) and not shown:
            self._progress.refresh()
        # Not the first step after a resumption: the log is that of an uninterrupted run.
        if step % self._config.log_every_steps == 0 or step == 1 or last:
            self.log(step, "train", {**means, "skipped_steps": float(skipped)})
            self._metrics = []

    def log(self, step: int, split: str, values: Metrics) -> None:
        """Writes an entry; see `MetricsLog.write`."""
        if self._log:
            self._log.write(step, split, values)

    def _means(self) -> Metrics:
        """Returns means over the finite steps since the last entry of the log, and rates."""
        columns = {k: np.concatenate([m[k] for m in self._metrics]) for k in self._metrics[0]}
        finite, seconds = columns.pop("finite") > 0, columns.pop("seconds")
        tokens, waits = columns.pop("tokens"), columns.pop("input_wait")
        padding = 1.0 - float(tokens.sum() / columns.pop("positions").sum())
        columns.pop("overflowed", None)
        means = {
            k: float(np.mean(v[finite])) if finite.any() else math.nan for k, v in columns.items()
        }
        for name in {"learning_rate", "loss_scale"} & columns.keys():
            means[name] = float(columns[name][-1])
        means["padding_share"] = padding
        timed = np.isfinite(seconds)
        if took := float(seconds[timed].sum()):
            means["examples_per_second"] = timed.sum() * self._config.train_batch_size / took
            means["tokens_per_second"] = float(tokens[timed].sum()) / took
            means["input_wait_share"] = float(waits[timed].sum()) / took
        return means


def read_metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """Returns the entries of metrics.jsonl without damaged ones; AlbertError if it is missing."""
    data = files.read_bytes(folder.file(METRICS_FILE), "metrics file")
    return [entry for entry in map(_entry, data.splitlines()) if entry]


def logged_metrics(folder: RunFolder, split: str) -> dict[int, Metrics]:
    """Returns the metrics of a split in metrics.jsonl by step; none if there is no such file."""
    entries = read_metrics(folder) if folder.has(METRICS_FILE) else ()
    return {
        entry.pop("step"): {k: math.nan if v is None else v for k, v in entry.items()}
        for entry in entries
        if entry.pop("split", None) == split
    }


def _entry(line: bytes) -> dict[str, Any] | None:
    """Parses a line; returns None if it is damaged."""
    with contextlib.suppress(*JSON_ERRORS):
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            return entry
    return None


def print_metrics(results: Metrics) -> None:
    """Prints metrics, one per line."""
    log.info("\n".join(f"  {name:24} {value:.4f}" for name, value in results.items()))


def write_results(folder: RunFolder, results: Metrics, writes: bool = True) -> None:
    """Writes eval_results.json, with null for metrics that are not finite.

    `writes` is False on workers other than the chief. Raises DivergedError after writing if a
    metric is not finite.
    """
    path = folder.file(RESULTS_FILE)
    if writes:
        files.write_json(path, results)
        log.info(f"Written to {path}.")
    if bad := [name for name, value in results.items() if not math.isfinite(value)]:
        raise DivergedError(
            f"The evaluation is not finite ({joined(bad, 80)}; null in {path}): the training "
            "has diverged. Use another checkpoint, or train again with a lower learning rate."
        )
