# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run, its best weights, and initial weights.

Weights are stored under their official names (`named_weights()`), so a checkpoint outlives changes
to the Python code, and checkpoints of the TF1 release are read by the same names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, StoppedError, first_line
from albert_tf.io import files, removal, storage
from albert_tf.keras2 import keras
from albert_tf.weights.checkpoint import check_checkpoint
from albert_tf.weights.checkpoint_files import (
    BEST,
    CHECKPOINT_LIST,
    CHECKPOINTS,
    BestRecord,
    checkpoints_in,
    files_of,
    read_best,
)
from albert_tf.weights.load import open_source
from albert_tf.weights.source import (
    POOLER,
    SENTENCE_ORDER,
    LoadReport,
    Source,
    assign_weights,
)


class CheckpointStore:
    """The checkpoints of one output directory.

    `checkpoints/ckpt-<step>` hold everything needed to resume the run, `best/ckpt-<step>` the
    weights of the best evaluation, which `best/best.json` records.

    A checkpoint is written under a temporary name, read back, and then renamed, its index last.
    Only then are others deleted: those beyond `keep_max`, and the former best weights once the
    record names the new ones. Damaged files are renamed, never deleted.

    Args:
      output_dir: the run's folder.
      named_weights: the model's weights by official name.
      optimizer: with its slots already created.
      state: what else to save, by name.
      keep_max: checkpoints kept in `checkpoints/`.
      writes: False on workers other than the chief, which save nothing: all have the same weights.

    Attributes:
      best: the record of the best evaluation; None before the first.
    """

    def __init__(
        self,
        output_dir: str,
        named_weights: Mapping[str, tf.Variable],
        optimizer: keras.optimizers.legacy.Optimizer,
        state: Mapping[str, tf.Variable | tf.Module | tf.train.experimental.PythonState],
        keep_max: int,
        writes: bool = True,
    ) -> None:
        self._folder = os.path.join(output_dir, CHECKPOINTS)
        self._best_folder = os.path.join(output_dir, BEST)
        weights = tf.train.Checkpoint(**named_weights)
        self._checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer, **state)
        self._best_checkpoint = tf.train.Checkpoint(weights=weights)
        self._keep_max, self._writes = keep_max, writes
        self.best: BestRecord | None = None

    @property
    def folders(self) -> tuple[str, str]:
        """The folders to which the store writes."""
        return self._folder, self._best_folder

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint, which may be damaged; None without any."""
        return next(reversed(self.kept().values()), None)

    def has_saved(self) -> bool:
        """Returns whether there are checkpoints, or were: then TensorFlow's list names them."""
        listed = storage.exists(os.path.join(self._folder, CHECKPOINT_LIST))
        return listed or bool(self.kept())

    def kept(self) -> dict[int, str]:
        """Returns the prefixes of the checkpoints by ascending step; some may be damaged."""
        return checkpoints_in(self._folder)

    def restore_newest(self) -> list[str]:
        """Restores the newest good checkpoint; changes no file.

        Returns:
          The prefixes of damaged checkpoints that are newer, each of which was named.

        Raises:
          StoppedError: a checkpoint cannot be read for now.
          AlbertError: there is no good checkpoint, or the newest good one does not fit this run.
        """
        damaged, faults = [], []
        for prefix in reversed(self.kept().values()):
            try:
                self.restore(prefix)
            except DamagedError as error:
                damaged.append(prefix)
                faults.append(str(error))
                continue
            for text in faults:
                print(f"{text} Resuming from {prefix}.")
            return damaged
        raise AlbertError(
            f"{' '.join(faults)} There is no good checkpoint in {self._folder}; put one back, or "
            "give another `output_dir`."
        )

    def set_aside(self, prefixes: Sequence[str]) -> None:
        """Renames the files of damaged checkpoints; their own data stays in them."""
        for prefix in prefixes if self._writes else ():
            for name in files_of(prefix):
                new = removal.set_aside(os.path.join(os.path.dirname(prefix), name))
                print(f"The damaged {name} is now {new}.")
        if prefixes and self._writes:
            self._write_list()

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
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise AlbertError(
                f"The checkpoint {prefix} does not fit this run ({first_line(error)}); give "
                "another `output_dir`."
            ) from error

    def save(self, step: int) -> None:
        """Saves everything under `step`, and deletes the oldest checkpoints beyond `keep_max`.

        Raises:
          StoppedError: there is no space left, or the file system fails.
        """
        if not self._writes:
            return
        self._write(self._checkpoint, self._folder, step)
        kept = self.kept()
        for prefix in list(kept.values())[: -self._keep_max]:
            removal.remove_files(self._folder, files_of(prefix))
        self._write_list()

    def _write_list(self) -> None:
        """Lists the checkpoints for tf.train.latest_checkpoint and other programs."""
        names = [os.path.basename(prefix) for prefix in self.kept().values()]
        lines = [f'model_checkpoint_path: "{names[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        files.write_text(os.path.join(self._folder, CHECKPOINT_LIST), "\n".join(lines) + "\n")

    def _write(self, checkpoint: tf.train.Checkpoint, folder: str, step: int) -> None:
        """Writes a checkpoint, which appears only when it is complete and was read back."""
        what = f"the checkpoint of step {step} in {folder}"

        def write(folder: str) -> None:
            temporary = removal.temporary_name(os.path.join(folder, f"ckpt-{step}"))
            try:
                storage.makedirs(temporary)
                prefix = os.path.join(temporary, f"ckpt-{step}")
                checkpoint.write(prefix)
                check_checkpoint(prefix)
                for name in reversed(files_of(prefix)):
                    storage.rename(os.path.join(temporary, name), os.path.join(folder, name))
            finally:
                removal.remove_temporary(temporary)

        try:
            with files.space_for(what):
                storage.retried(write, folder)
        except (DamagedError, StoppedError, tf.errors.OpError) as error:
            last = f"The last one is {self.latest()}." if self.latest() else "There is none yet."
            if not isinstance(error, StoppedError):
                error = f"Cannot write {what}: {first_line(error)}."
            raise StoppedError(f"{error} {last}") from None

    def restore_best(self) -> None:
        """Reads the record of the best weights; renames the folder if anything in it is damaged.

        Raises:
          StoppedError: it cannot be read for now.
        """
        folder = self._best_folder
        try:
            self.best = read_best(folder)
            if self.best:
                check_checkpoint(os.path.join(folder, self.best.checkpoint))
        except DamagedError as error:
            self.best = None
            if self._writes:
                new = removal.set_aside(folder)
                print(f"{error} They are now in {new}; the next evaluation is the best.")

    def save_best(self, step: int, metric: str, value: float, data: str = "") -> None:
        """Saves the weights as the best so far, and deletes the previous best.

        Args:
          step, metric, value, data: see BestRecord.

        Raises:
          StoppedError: there is no space left, or the file system fails.
        """
        self.best = BestRecord(step, metric, value, f"ckpt-{step}", data)
        if not self._writes:
            return
        self._write(self._best_checkpoint, self._best_folder, step)
        # The weights come before the record that names them; the old ones go last.
        self.best.save(self._best_folder)
        for other, prefix in checkpoints_in(self._best_folder).items():
            if other != step:
                removal.remove_files(self._best_folder, files_of(prefix))


def load_weights(
    path: str | Source, named_weights: Mapping[str, tf.Variable], whole: bool = False
) -> LoadReport:
    """Assigns weights from a checkpoint by name.

    Args:
      path: anything `albert_tf.weights.load.open_source` recognises, or the Source it returns.
      named_weights: the model's weights by official name.
      whole: the checkpoint must hold every variable. Otherwise the pooler may be missing, and task
        heads may be missing or have another shape; they keep their initial values.

    Raises:
      AlbertError: there is no readable checkpoint, a required variable is missing or has another
        shape, or the checkpoint has layers that the model lacks.
    """
    source = path if isinstance(path, Source) else open_source(path)
    report = assign_weights(source, named_weights)
    required = report.missing if whole else report.missing_of_encoder
    left_out = report.unexpected_of_encoder
    if required or left_out:
        parts, settings = [], ""
        if report.difference_in_groups:
            parts.append(report.difference_in_groups)
            settings = " (num_hidden_groups, inner_group_num and parameter_sharing)"
        if required:
            parts.append(f"it lacks {_some(required)}")
        if left_out:
            parts.append(f"it also has {_some(left_out)}")
        advice = f"Use the configuration the checkpoint was trained with{settings}."
        if not left_out and {*required} <= POOLER | SENTENCE_ORDER:
            advice = "Other libraries' masked LMs lack these weights; fine-tune the model first."
        raise AlbertError(
            f"The checkpoint {report.checkpoint} does not fit the model; {'; '.join(parts)}. "
            f"{advice}"
        )
    return report


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
