# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run, and its best weights.

Weights are stored under their official names (`named_weights()`), so a checkpoint outlives changes
to the Python code, and checkpoints of the TF1 release are read by the same names.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, StoppedError, first_line
from albert_tf.io import files, removal, storage
from albert_tf.io.log import log
from albert_tf.weights.checkpoint import check_checkpoint
from albert_tf.weights.run_folder import BEST, CHECKPOINTS, BestRecord, RunFolder


class CheckpointStore:
    """Saves and restores a run in its folder.

    A checkpoint is written under a temporary name, read back, and then renamed, its index last.
    Only then are others deleted: those beyond `keep_max`, and the former best weights once the
    record names the new ones. Damaged files are renamed, never deleted.

    Args:
      folder: of the run.
      named_weights: the model's weights by official name.
      state: what else to save, by name, such as the optimizer's.
      keep_max: checkpoints kept in `checkpoints/`.
      writes: False on workers other than the chief, which save nothing: all have the same weights.

    Attributes:
      folder: as passed in.
      best: the record of the best evaluation; None before the first.
    """

    def __init__(
        self,
        folder: RunFolder,
        named_weights: Mapping[str, tf.Variable],
        state: Mapping[str, tf.Variable | tf.Module | tf.train.Checkpoint],
        keep_max: int,
        writes: bool = True,
    ) -> None:
        self.folder = folder
        weights = tf.train.Checkpoint(**named_weights)
        self._checkpoint = tf.train.Checkpoint(weights=weights, **state)
        self._best_checkpoint = tf.train.Checkpoint(weights=weights)
        self._keep_max, self._writes = keep_max, writes
        self.best: BestRecord | None = None

    def restore_newest(self) -> list[str]:
        """Restores the newest good checkpoint; changes no file.

        Returns:
          The prefixes of damaged checkpoints that are newer, each of which was named.

        Raises:
          StoppedError: a checkpoint cannot be read for now.
          AlbertError: there is no good checkpoint, or the newest good one does not fit this run.
        """
        damaged, faults = [], []
        for prefix in reversed(self.folder.checkpoints().values()):
            try:
                self.restore(prefix)
            except DamagedError as error:
                damaged.append(prefix)
                faults.append(str(error))
                continue
            for text in faults:
                log.info(f"{text} Resuming from {prefix}.")
            return damaged
        raise AlbertError(
            f"{' '.join(faults)} There is no good checkpoint in {self.folder.file(CHECKPOINTS)}; "
            "put one back, or give another `output_dir`."
        )

    def restore(self, prefix: str) -> None:
        """Restores weights, slots and state.

        Raises:
          DamagedError: the checkpoint is damaged; nothing is restored.
          StoppedError: it cannot be read for now.
          AlbertError: it lacks a value, or has one of another shape.
        """
        check_checkpoint(prefix)
        try:
            storage.retried(
                lambda prefix: self._checkpoint.read(prefix).assert_existing_objects_matched(),
                prefix,
            )
        except AlbertError:
            raise
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise AlbertError(
                f"The checkpoint {prefix} does not fit this run ({first_line(error)}); give "
                "another `output_dir`."
            ) from error

    def restore_best(self) -> None:
        """Reads the record of the best weights; renames the folder if anything in it is damaged.

        Raises:
          StoppedError: it cannot be read for now.
        """
        try:
            self.best = self.folder.best()
            if self.best:
                check_checkpoint(self.folder.file(BEST, self.best.checkpoint))
        except DamagedError as error:
            self.best = None
            if self._writes:
                new = removal.set_aside(self.folder.file(BEST))
                log.info(f"{error} They are now in {new}; the next evaluation is the best.")

    def save(self, step: int) -> None:
        """Saves everything under `step`, and deletes the oldest checkpoints beyond `keep_max`.

        Raises:
          StoppedError: there is no space left, or the file system fails.
        """
        if self._writes:
            self._write(self._checkpoint, CHECKPOINTS, step)
            kept = list(self.folder.checkpoints())[-self._keep_max :]
            self.folder.delete_checkpoints(CHECKPOINTS, keep=kept)
            self.folder.list_checkpoints()

    def save_best(self, step: int, metric: str, value: float, data: str = "") -> None:
        """Saves the weights as the best so far, and deletes the previous best.

        Args:
          step, metric, value, data: see BestRecord.

        Raises:
          StoppedError: there is no space left, or the file system fails.
        """
        self.best = BestRecord(step, metric, value, f"ckpt-{step}", data)
        if self._writes:
            self._write(self._best_checkpoint, BEST, step)
            # The weights come before the record that names them; the old ones go last.
            self.best.save(self.folder.file(BEST))
            self.folder.delete_checkpoints(BEST, keep=[step])

    def _write(self, checkpoint: tf.train.Checkpoint, part: str, step: int) -> None:
        """Writes a checkpoint, which appears only when it is complete and was read back."""
        what = f"the checkpoint of step {step} in {self.folder.file(part)}"

        def write(_: str) -> None:
            with self.folder.new_checkpoint(part, step) as prefix:
                checkpoint.write(prefix)
                check_checkpoint(prefix)

        try:
            with files.space_for(what):
                storage.retried(write, self.folder.file(part))
        except (DamagedError, StoppedError, tf.errors.OpError) as error:
            newest = self.folder.newest()
            last = f"The last one is {newest}." if newest else "There is none yet."
            if not isinstance(error, StoppedError):
                error = f"Cannot write {what}: {first_line(error)}."
            raise StoppedError(f"{error} {last}") from None
