# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the run's own, the best weights, and weights to start from.

Weights are stored under their official names (`named_weights()`), so a checkpoint outlives changes
of the Python code, and checkpoints of the TF1 release are read by the same names.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

import tensorflow as tf

from albert_tf import files
from albert_tf.convert.checkpoint import (
    BEST,
    BEST_RECORD,
    CHECKPOINTS,
    BestRecord,
    named_newest,
    read_best,
)
from albert_tf.convert.load import open_source
from albert_tf.convert.source import LoadReport, assign_weights, first_line
from albert_tf.errors import AlbertError


def _trackable(named_weights: Mapping[str, tf.Variable]) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(**named_weights)


class CheckpointStore:
    """The checkpoints of one output directory.

    `checkpoints/ckpt-<step>` hold everything a run needs to go on, `best/ckpt-<step>` the weights
    of the best evaluation, named with its value in `best/best.json`.

    Args:
      output_dir: the run's folder.
      named_weights: the model's weights by official name.
      optimizer: with its slots already created.
      state: what else to save, by name.
      keep_max: checkpoints kept in `checkpoints/`.
      writes: False on workers other than the chief: they take part in saving (a collective
        operation), into a folder that is deleted again.

    Raises:
      AlbertError: the list of checkpoints in the folder is damaged.
    """

    def __init__(
        self,
        output_dir: str,
        named_weights: Mapping[str, tf.Variable],
        optimizer: tf.keras.optimizers.legacy.Optimizer,
        state: Mapping[str, tf.Variable | tf.train.experimental.PythonState],
        keep_max: int,
        writes: bool = True,
    ) -> None:
        self._writes = writes
        self._folder = os.path.join(output_dir, CHECKPOINTS)
        self._best_folder = os.path.join(output_dir, BEST)
        if not writes:
            self._folder += f"/.worker-{os.getpid()}"
            self._best_folder += f"/.worker-{os.getpid()}"
        weights = _trackable(named_weights)
        self._checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer, **state)
        self._best = tf.train.Checkpoint(weights=weights)
        self._output_dir, self._keep_max = output_dir, keep_max
        self._manager = self._new_manager()

    def latest(self) -> str | None:
        """Prefix of the newest complete checkpoint, None if there is none."""
        return named_newest(os.path.join(self._output_dir, CHECKPOINTS))

    def kept(self) -> dict[int, str]:
        """Prefixes of the checkpoints by step, in ascending order."""
        state = tf.train.get_checkpoint_state(os.path.join(self._output_dir, CHECKPOINTS))
        paths = state.all_model_checkpoint_paths if state else []
        return dict(sorted((_step_of(path), path) for path in paths))

    def forget_after(self, step: int) -> None:
        """Deletes the checkpoints after that of `step`."""
        if not self._writes:
            return
        state = tf.train.get_checkpoint_state(self._folder)
        lines, late = [], []
        for path, time in zip(
            state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
        ):
            if _step_of(path) > step:
                late.append(path)
                continue
            # TensorFlow's list of checkpoints, for which it has no function of public use.
            name = os.path.basename(path)
            lines += [f'all_model_checkpoint_paths: "{name}"']
            lines += [f"all_model_checkpoint_timestamps: {time!r}"]
            if _step_of(path) == step:
                lines.append(f'model_checkpoint_path: "{name}"')
        # First they are no longer named, then they go: stopped in between, nothing is half there.
        files.write_text(os.path.join(self._folder, "checkpoint"), "\n".join(lines) + "\n")
        for path in late:
            for file in tf.io.gfile.glob(f"{path}.*"):
                tf.io.gfile.remove(file)
        self._manager = self._new_manager()

    def _new_manager(self) -> tf.train.CheckpointManager:
        try:
            return tf.train.CheckpointManager(
                self._checkpoint, self._folder, max_to_keep=self._keep_max, checkpoint_name="ckpt"
            )
        except ValueError as error:  # Not UTF-8, or lists that do not fit each other.
            raise AlbertError(
                f"The file {self._folder}/checkpoint is damaged; write into it the one line "
                'model_checkpoint_path: "ckpt-<step>" with the newest step there is.'
            ) from error

    def restore(self, prefix: str) -> None:
        """Restores weights, slots and state.

        Raises:
          AlbertError: the checkpoint lacks a value, has one of another shape, or is unreadable.
        """
        try:
            status = self._checkpoint.restore(prefix)
            status.assert_existing_objects_matched()
        except (AssertionError, IndexError, ValueError, tf.errors.OpError) as error:
            raise AlbertError(
                f"The checkpoint {prefix} does not fit this run or is damaged "
                f"({first_line(error)}); delete it to go on from an older one."
            ) from error

    def save(self, step: int) -> str:
        """Saves everything under `step`; the checkpoint appears only when complete."""
        try:
            path = self._manager.save(checkpoint_number=step)
        except tf.errors.OpError as error:
            raise AlbertError(
                f"The checkpoint of step {step} cannot be written to {self._folder} "
                f"({first_line(error)}); the last good one is {self.latest()}."
            ) from error
        self._clean_up()
        return path

    def best(self) -> BestRecord | None:
        """The record of the best evaluation; None before the first."""
        return read_best(os.path.join(self._output_dir, BEST))

    def save_best(self, step: int, metric: str, value: float) -> None:
        """Saves the weights as the best so far and deletes the former best."""
        name = f"ckpt-{step}"
        self._best.write(os.path.join(self._best_folder, name))
        if self._writes:
            # The record is written after what it names, and what it no longer names goes last.
            record = dataclasses.asdict(BestRecord(step, metric, value, name))
            files.write_json(os.path.join(self._best_folder, BEST_RECORD), record)
            self._keep_best(name)
        self._clean_up()

    def _keep_best(self, name: str) -> None:
        """Deletes all checkpoints but one, and what there is of unfinished ones."""
        for other in tf.io.gfile.glob(os.path.join(self._best_folder, "ckpt-*")):
            if not os.path.basename(other).startswith(f"{name}."):
                tf.io.gfile.rmtree(other) if tf.io.gfile.isdir(other) else tf.io.gfile.remove(other)

    def remove_unfinished(self) -> None:
        """Deletes what a process left that was killed while it wrote a checkpoint."""
        if not self._writes:
            return
        for folder in (self._folder, self._best_folder):
            files.remove_temporary(folder)
            # TensorFlow's own, which it does not always clear away when it writes there again.
            for unfinished in tf.io.gfile.glob(os.path.join(folder, "ckpt-*_temp")):
                tf.io.gfile.rmtree(unfinished)
        best = self.best()
        if best:
            self._keep_best(best.checkpoint)

    def forget_best(self) -> None:
        """Deletes the best weights, which an earlier run left that saved no checkpoint."""
        if tf.io.gfile.exists(self._best_folder):
            tf.io.gfile.rmtree(self._best_folder)

    def _clean_up(self) -> None:
        if not self._writes:
            for folder in (self._folder, self._best_folder):
                if tf.io.gfile.exists(folder):
                    tf.io.gfile.rmtree(folder)


def _step_of(prefix: str) -> int:
    return int(prefix.rpartition("-")[2])


def load_weights(
    path: str, named_weights: Mapping[str, tf.Variable], whole: bool = False
) -> LoadReport:
    """Assigns weights from a checkpoint by name.

    Args:
      path: anything `albert_tf.convert.load.open_source` recognises.
      named_weights: the model's weights by official name.
      whole: every variable must be in the checkpoint. Otherwise task heads may be missing, or be
        of another shape, and the pooler may be missing; they keep their initial values.

    Raises:
      AlbertError: there is no readable checkpoint, or a required variable is missing or of
        another shape.
    """
    report = assign_weights(open_source(path), named_weights)
    required = report.missing if whole else report.missing_of_encoder
    if required:
        raise AlbertError(
            f"The checkpoint {report.checkpoint} does not fit the model; it lacks "
            + ", ".join(required[:5])
            + (f" and {len(required) - 5} more" if len(required) > 5 else "")
            + ". Use the configuration the checkpoint was trained with."
        )
    return report
