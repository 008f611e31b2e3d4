# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports a run: progress on the terminal, metrics.jsonl and TensorBoard events."""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError, first_line
from albert_tf.io import files, storage
from albert_tf.io.json_values import JSON_ERRORS, finite_only
from albert_tf.io.log import log
from albert_tf.io.progress import Progress
from albert_tf.training.run_identity import RunIdentity
from albert_tf.training.specs import RunConfig, TrainSpec
from albert_tf.training.task import Task
from albert_tf.weights.run_folder import METRICS_FILE

#: Warn if more than this share of the time goes to waiting for input, in two periods in a row.
_INPUT_SHARE = 0.1


class MetricsLog:
    """metrics.jsonl and TensorBoard events of one output directory.

    Args:
      output_dir: the run's folder.
      step: the step from which the run continues; later entries of an interrupted run are dropped,
        as their steps are repeated.
    """

    def __init__(self, output_dir: str, step: int) -> None:
        self._path = os.path.join(output_dir, METRICS_FILE)
        lines = []
        if files.exists(self._path):
            lines = files.read_bytes(self._path).splitlines()
            entries = [_entry(line) for line in lines]
            damaged = entries[:-1].count(None)  # A crash may have cut off the last one.
            if damaged:
                log.info(f"{self._path} has {damaged} damaged lines; they are dropped.")
            lines = [line for line, entry in zip(lines, entries) if entry and entry["step"] <= step]
        files.write_bytes(self._path, b"".join(line + b"\n" for line in lines))
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._events = os.path.join(output_dir, "events")

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Appends {"step", "split", …values}; numbers that are not finite are written as null."""
        entry = {"step": step, "split": split, **finite_only(values)}
        what = f"the metrics of step {step}"
        place = f"{what}, in {self._path}"
        try:
            with files.space_for(place):
                self._append(json.dumps(entry).encode() + b"\n")
        except tf.errors.OpError as error:
            raise AlbertError(
                f"Cannot write {place} ({first_line(error)}). Was the folder deleted?"
            ) from error
        with self._summaries(split, what):
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)

    def _append(self, line: bytes) -> None:
        try:
            with tf.io.gfile.GFile(self._path, "ab") as f:
                f.write(line)
        except tf.errors.OpError as error:
            if not storage.may_pass(error):
                raise
            # Nobody knows how much of it was written.
            whole = [x for x in files.read_bytes(self._path).splitlines(True) if x.endswith(b"\n")]
            files.write_bytes(self._path, b"".join([*(x for x in whole if x != line), line]))

    def hyperparameters(self, values: Mapping[str, bool | int | float | str], run: str) -> None:
        """Adds the settings of a run to TensorBoard's HPARAMS, which compares runs by name.

        They belong to the folder above those of the splits, as its tables show metrics below the
        folder of the settings.
        """
        from tensorboard.plugins.hparams import api

        with self._summaries("", "the settings of the run"):
            api.hparams(dict(values), trial_id=run)

    @contextlib.contextmanager
    def _summaries(self, split: str, what: str) -> Iterator[None]:
        """Writes summaries to the folder of a split, in a with block."""
        with files.space_for(f"{what}, in {self._events}"):
            if split not in self._writers:
                folder = os.path.join(self._events, split).rstrip("/")
                self._writers[split] = storage.retried(tf.summary.create_file_writer, folder)
            writer = self._writers[split]
            try:
                with writer.as_default():  # At its end it writes.
                    yield
            except tf.errors.OpError as error:
                if not storage.may_pass(error):
                    raise
                storage.retried(lambda _: writer.flush(), self._events)

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()


class RunMonitor:
    """Shows and logs a training: progress, metrics.jsonl, TensorBoard events, warnings.

    Args:
      task: formats the progress line.
      identity: of the run, for its settings.
      config: of the run.
      train_spec: of the run.
      writes: False on workers other than the chief, which log nothing.

    Attributes:
      first_step: the step at which the run began, or was resumed.
    """

    def __init__(
        self,
        task: Task,
        identity: RunIdentity,
        config: RunConfig,
        train_spec: TrainSpec,
        writes: bool,
    ) -> None:
        self._task, self._identity = task, identity
        self._config, self._train_spec = config, train_spec
        self._writes = writes
        self._log: MetricsLog | None = None
        self._tokens = self._positions = 0.0
        self._waiting_periods, self._warned = 0, False
        self.first_step = 0

    def begin(self, step: int) -> None:
        """Begins at a step; later entries of the log are dropped."""
        self.first_step = step
        self._clear()
        if self._writes:
            self._log = MetricsLog(self._config.output_dir, step)
            if not step:
                values = self._identity.hyperparameters()
                self._log.hyperparameters(values, self._config.output_dir)
        self._progress = Progress("train", self._train_spec.max_steps, "steps", step)

    def _clear(self) -> None:
        """Forgets the steps since the last entry of the log."""
        self._metrics: list[dict[str, np.ndarray]] = []
        self._timed: list[dict[str, np.ndarray]] = []
        self._seconds = 0.0

    def close(self) -> None:
        """Closes the progress line and the event files."""
        self._progress.close()
        if self._log:
            self._log.close()

    def all_layers(self, step: int) -> None:
        """Reports that the steps after `step` train all layers."""
        self.note(f"From step {step + 1:,} on, all layers are trained.")
        self._progress.speed_changes()

    def note(self, text: str) -> None:
        """Prints a few lines above the progress line."""
        self._progress.note("\n  ".join(textwrap.wrap(text, 78, break_on_hyphens=False)))

    def trained(
        self, step: int, metrics: dict[str, np.ndarray], seconds: float | None, skipped: int
    ) -> None:
        """Reports one call of `TrainLoop.run`.

        Args:
          step: the last of its steps.
          metrics: as the call returned them.
          seconds: how long it took; None if it also traced and compiled, so that the time does not
            count.
          skipped: steps that were not finite, in the whole run.
        """
        steps = len(metrics["finite"])
        last = step == self._train_spec.max_steps
        self._metrics.append(metrics)
        if seconds is not None:
            self._timed.append(metrics)
            self._seconds += seconds
        self._tokens += metrics["tokens"].sum()
        self._positions += metrics["positions"].sum()
        self._note_skipped(step, metrics, skipped)
        means = self._means()
        rate = f"{means['learning_rate']:.1e}".replace("e-0", "e-")
        text = f"{self._task.progress(means)} lr {rate}"
        if "tokens_per_second" in means:
            text += f" {short_rate(means['tokens_per_second'])} tok/s"
        self._progress.update(steps, text, show=seconds is None or last)
        # Not the first step after a resumption: the log is that of an uninterrupted run.
        if step % self._config.log_every_steps == 0 or step == 1 or last:
            self._watch_input(step, means.get("input_wait_share", 0.0))
            self.log(step, "train", {**means, "skipped_steps": float(skipped)})
            self._clear()

    def _note_skipped(self, step: int, metrics: dict[str, np.ndarray], skipped: int) -> None:
        bad = metrics["finite"] == 0
        if "overflowed" in metrics and (overflowed := metrics["overflowed"] > 0).any():
            scale = metrics["loss_scale"][overflowed][-1] / 2
            self.note(
                f"step {step}: {overflowed.sum()} step(s) skipped, gradient too large for float16; "
                f"the loss scale is now {scale:,.0f} ({skipped} in all)"
            )
            bad &= ~overflowed
        if bad.any():
            self.note(
                f"step {step}: {bad.sum()} step(s) skipped, loss or gradient not finite "
                f"({skipped} in all)"
            )

    def _watch_input(self, step: int, share: float) -> None:
        """Warns, once a run, that training waits for its input this share of the time."""
        self._waiting_periods = self._waiting_periods + 1 if share > _INPUT_SHARE else 0
        if self._waiting_periods >= 2 and not self._warned:
            self._warned = True
            self.note(
                f"Warning: before step {step}, {share:.0%} of the time went to waiting for input. "
                "Put the records on a local disk, or leave more processor cores to this program."
            )

    def log(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Writes an entry of the log; see `MetricsLog.write`."""
        if self._log:
            self._log.write(step, split, values)

    def _means(self) -> dict[str, float]:
        """Returns means over the finite steps since the last entry of the log, and rates."""
        columns = {k: np.concatenate([m[k] for m in self._metrics]) for k in self._metrics[0]}
        finite = columns.pop("finite") > 0
        for name in ("input_wait", "overflowed"):
            columns.pop(name, None)
        tokens, positions = columns.pop("tokens"), columns.pop("positions")
        means = {
            k: float(np.mean(v[finite])) if finite.any() else float("nan")
            for k, v in columns.items()
        }
        for name in {"learning_rate", "loss_scale"} & columns.keys():
            means[name] = float(columns[name][-1])
        means["padding_share"] = 1.0 - float(tokens.sum() / positions.sum())
        if self._seconds:

            def per_second(amounts: Callable[[dict[str, np.ndarray]], float]) -> float:
                return sum(map(amounts, self._timed)) / self._seconds

            size = self._config.train_batch_size
            means["examples_per_second"] = per_second(lambda m: len(m["tokens"]) * size)
            means["tokens_per_second"] = per_second(lambda m: float(np.sum(m["tokens"])))
            means["input_wait_share"] = per_second(lambda m: float(np.sum(m["input_wait"])))
        return means

    @property
    def padding_share(self) -> float:
        """The share of the positions trained on that were padding."""
        return 1 - self._tokens / self._positions


def read_metrics(output_dir: str) -> list[dict[str, Any]]:
    """Returns the entries of metrics.jsonl without damaged ones; see `MetricsLog.write`.

    Raises:
      AlbertError: there is no such file.
    """
    data = files.read_bytes(os.path.join(output_dir, METRICS_FILE), "metrics file")
    return [entry for entry in map(_entry, data.splitlines()) if entry]


def logged_metrics(output_dir: str, split: str) -> dict[int, dict[str, float]]:
    """Returns the metrics of a split in metrics.jsonl by step; none if there is no such file."""
    if not files.exists(os.path.join(output_dir, METRICS_FILE)):
        return {}
    logged = {}
    for entry in read_metrics(output_dir):
        if entry.pop("split", None) == split:
            step = entry.pop("step")
            logged[step] = {k: float("nan") if v is None else v for k, v in entry.items()}
    return logged


def _entry(line: bytes) -> dict[str, Any] | None:
    """Parses a line; returns None if it is damaged."""
    try:
        entry = json.loads(line)
    except JSON_ERRORS:
        return None
    intact = isinstance(entry, dict) and isinstance(entry.get("step"), int)
    return entry if intact else None


def short_rate(value: float) -> str:
    """Formats a rate in at most five characters: 987, 12.3k, 4.56M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
