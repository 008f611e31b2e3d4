# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run, and its best weights.

Weights are stored under their official names (`named_weights()`), so a checkpoint outlives changes
to the Python code, and checkpoints of the TF1 release are read by the same names.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, StoppedError, first_line
from albert_tf.io import files, removal, storage
from albert_tf.io.json_values import joined
from albert_tf.io.log import log
from albert_tf.weights.checkpoint import check_checkpoint, list_newest
from albert_tf.weights.run_folder import (
    BEST,
    CHECKPOINTS,
    BestRecord,
    RunFolder,
    files_before,
    files_of,
)


class CheckpointStore:
    """Saves and restores a run in its folder; only it changes checkpoints there.

    A checkpoint is written under a temporary name, read back, and then renamed, its index last.
    Only then are others deleted: those beyond `keep_max`, and the former best weights once the
    record names the new ones. Damaged files are renamed, never deleted. All methods raise
    StoppedError if the file system fails, or has no space left.

    Args:
      folder: of the run.
      named_weights: the model's weights by official name.
      state: what else to save, by name, such as the optimizer's.
      keep_max: checkpoints kept in `checkpoints/`.
      writes: False on workers other than the chief, which change no file.

    Attributes:
      folder: as passed in.
      best: the record of the best evaluation; None before the first.
    """

    def __init__(
        self,
        folder: RunFolder,
        named_weights: Mapping[str, tf.Variable],
        state: Mapping[str, object],
        keep_max: int,
        writes: bool = True,
    ) -> None:
        self.folder = folder
        weights = tf.train.Checkpoint(**named_weights)
        self._checkpoint = tf.train.Checkpoint(weights=weights, **state)
        self._best_checkpoint = tf.train.Checkpoint(weights=weights)
        self._keep_max, self._writes = keep_max, writes
        self.best = None

    def restore_newest(self) -> list[str]:
        """Restores the newest good checkpoint; changes no file.

        Names newer ones, which are damaged, and returns their prefixes. Raises AlbertError if there
        is no good one, or it does not fit this run.
        """
        damaged = {}
        for prefix in reversed(self.folder.checkpoints().values()):
            try:
                self.restore(prefix)
            except DamagedError as error:
                damaged[prefix] = str(error)
                continue
            for text in damaged.values():
                log.info(f"{text} Resuming from {prefix}.")
            return list(damaged)
        folder = self.folder.file(CHECKPOINTS)
        none = f"There is no good checkpoint in {folder}"
        advice = "put one back, or give another `output_dir`."
        raise AlbertError(" ".join([*damaged.values(), f"{none}; {advice}"]))

    def restore(self, prefix: str) -> None:
        """Restores weights, slots and state.

        Raises:
          DamagedError: the checkpoint is damaged; nothing is restored.
          AlbertError: it lacks a value, or has one of another shape.
        """
        check_checkpoint(prefix)

        def read(prefix: str) -> None:
            try:
                self._checkpoint.read(prefix).assert_existing_objects_matched()
            except tf.errors.NotFoundError as error:
                # Its files were just there: TensorFlow could not look for them.
                raise tf.errors.UnavailableError(None, None, str(error)) from error

        try:
            storage.retried(read, prefix)
        except AlbertError:
            raise
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise AlbertError(
                f"The checkpoint {prefix} does not fit this run ({first_line(error)}); give "
                "another `output_dir`."
            ) from error

    def set_aside(self, damaged: Collection[str]) -> None:
        """Renames the files of damaged checkpoints, given by prefix; their data stays in them."""
        for prefix in damaged if self._writes else ():
            for path in reversed(files_of(prefix)):  # Without the index it would be forgotten.
                new = removal.set_aside(path)
                log.info(f"The damaged {os.path.basename(path)} is now {new}.")

    def restore_best(self) -> None:
        """Reads the record of the best weights; renames the folder if anything in it is damaged."""
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
        """Saves everything under `step`, and deletes the oldest checkpoints beyond `keep_max`."""
        if self._writes:
            self._write(self._checkpoint, CHECKPOINTS, step)
            self.tidy()

    def tidy(self) -> None:
        """Deletes old checkpoints and names the newest, as `save` does, once that was read."""
        if self._writes:
            kept = dict([*self.folder.checkpoints().items()][-self._keep_max :])
            if len(kept) == self._keep_max:
                self._delete_before(CHECKPOINTS, min(kept))
            if self.best:
                self._delete_before(BEST, self.best.step)
            list_newest(self.folder.file(CHECKPOINTS), f"ckpt-{max(kept)}")

    def save_best(self, record: BestRecord) -> None:
        """Saves the weights as the best so far, and deletes the previous best."""
        self.best = record
        if self._writes:
            self._write(self._best_checkpoint, BEST, record.step)
            # The weights come before the record that names them; the old ones go last.
            record.save(self.folder.file(BEST))
            self._delete_before(BEST, record.step)

    def _write(self, checkpoint: tf.train.Checkpoint, part: str, step: int) -> None:
        """Writes a checkpoint, which appears only when it is complete and was read back."""
        folder, name = self.folder.file(part), f"ckpt-{step}"
        what = f"the checkpoint of step {step} in {folder}"

        def write(folder) -> None:
            temporary = removal.temporary_name(os.path.join(folder, name))
            prefix = os.path.join(temporary, name)
            try:
                storage.makedirs(temporary)
                checkpoint.write(prefix)
                check_checkpoint(prefix)
                for path in reversed(files_of(prefix)):  # The index comes last.
                    storage.rename(path, os.path.join(folder, os.path.basename(path)))
            finally:
                removal.remove_temporary(temporary)

        try:
            with files.space_for(what):
                storage.retried(write, folder)
        except (DamagedError, StoppedError, tf.errors.OpError) as error:
            if not isinstance(error, StoppedError):
                error = f"Cannot write {what}: {first_line(error)}."
            earlier = joined(self.folder.checkpoints().values())
            raise StoppedError(f"{error} Earlier checkpoints: {earlier}.") from None

    def _delete_before(self, part: str, step: int) -> None:
        folder = self.folder.file(part)
        removal.remove_files(folder, files_before(folder, step))
