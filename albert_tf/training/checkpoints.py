# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run, its best weights, and initial weights.

Weights are stored under their official names (`named_weights()`), so a checkpoint outlives changes
to the Python code, and checkpoints of the TF1 release are read by the same names.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, StoppedError, first_line
from albert_tf.io import files
from albert_tf.keras2 import keras
from albert_tf.weights.checkpoint import check_checkpoint, open_checkpoint, reading_error
from albert_tf.weights.checkpoint_files import (
    BEST,
    CHECKPOINT_LIST,
    CHECKPOINTS,
    BestRecord,
    newest_first,
    read_best,
    step_of,
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

    Args:
      output_dir: the run's folder.
      named_weights: the model's weights by official name.
      optimizer: with its slots already created.
      state: what else to save, by name.
      keep_max: checkpoints kept in `checkpoints/`.
      writes: False on workers other than the chief: they take part in saving (a collective
        operation), into a folder that is then deleted.

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
        self._writes = writes
        # If a worker is killed, the chief of the next run deletes this as a temporary folder.
        self._scratch = os.path.join(output_dir, f"worker.tmp-{uuid.uuid4().hex[:8]}")
        folder = output_dir if writes else self._scratch
        self._folder = os.path.join(folder, CHECKPOINTS)
        self._best_folder = os.path.join(folder, BEST)
        weights = tf.train.Checkpoint(**named_weights)
        self._checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer, **state)
        self._best_checkpoint = tf.train.Checkpoint(weights=weights)
        self._output_dir, self._keep_max = output_dir, keep_max
        self.best: BestRecord | None = None

    @functools.cached_property
    def _manager(self) -> tf.train.CheckpointManager:
        # Created when first needed: it reads the list of checkpoints, which must be intact by then.
        return tf.train.CheckpointManager(
            self._checkpoint, self._folder, max_to_keep=self._keep_max, checkpoint_name="ckpt"
        )

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint, which may be damaged; None without any."""
        return next(reversed(self.kept().values()), None)

    def kept(self) -> dict[int, str]:
        """Returns the prefixes of the checkpoints by ascending step; some may be damaged."""
        prefixes, _ = newest_first(os.path.join(self._output_dir, CHECKPOINTS))
        steps = {step_of(prefix): prefix for prefix in prefixes}
        steps.pop(None, None)
        return dict(sorted(steps.items()))

    def begin(self) -> None:
        """Deletes the remains of an earlier run that saved no checkpoint."""
        self.forget_best()
        self.forget_after(-1)

    def restore_newest(self) -> None:
        """Restores the newest good checkpoint, and the record of the best weights.

        Names damaged checkpoints, and deletes them once an older one has been restored.

        Raises:
          AlbertError: there is no good checkpoint, or the newest good one does not fit this run.
            The folder is left unchanged.
        """
        folder = os.path.join(self._output_dir, CHECKPOINTS)
        _, fault = newest_first(folder)
        faults = [fault] if fault else []
        for step, prefix in reversed(self.kept().items()):
            try:
                self.restore(prefix)
            except DamagedError as error:
                faults.append(str(error))
                continue
            for text in faults:
                print(f"{text} Resuming from {prefix}.")
            self.forget_after(step)
            self._restore_best()
            return
        raise AlbertError(
            f"{' '.join(faults)} There is no good checkpoint in {folder}; put one back, or give "
            "another `output_dir`."
        )

    def forget_after(self, step: int) -> None:
        """Deletes the checkpoints after `step`, and parts of unfinished or deleted ones."""
        if not self._writes:
            return
        kept = {number: path for number, path in self.kept().items() if number <= step}
        names = [os.path.basename(path) for path in kept.values()]
        # TensorFlow's list of checkpoints; it has no public function that writes one.
        lines = [f'model_checkpoint_path: "{name}"' for name in names[-1:]]
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        lines += [f"all_model_checkpoint_timestamps: {time.time()}"] * len(names)
        # The list comes first: if the process is killed in between, no listed checkpoint is
        # incomplete, and the next resumed run deletes the rest.
        path = os.path.join(self._folder, CHECKPOINT_LIST)
        if names:
            files.write_text(path, "\n".join(lines) + "\n")
        elif tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
        _delete(
            self._folder,
            lambda number, name: number > step
            or name.endswith("_temp")
            or not tf.io.gfile.exists(os.path.join(self._folder, f"ckpt-{number}.index")),
        )
        files.remove_temporary(self._folder)
        self.__dict__.pop("_manager", None)

    def restore(self, prefix: str) -> None:
        """Restores weights, slots and state.

        Raises:
          DamagedError: the checkpoint is damaged. Some values may have been restored; restore
            another checkpoint over them.
          AlbertError: it cannot be read, lacks a value, or has one of another shape.
        """
        open_checkpoint(prefix)
        try:
            self._checkpoint.restore(prefix).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise AlbertError(
                f"The checkpoint {prefix} does not fit this run ({first_line(error)}); give "
                "another `output_dir`."
            ) from error
        except (IndexError, tf.errors.OpError) as error:
            raise reading_error(prefix, error) from error

    def save(self, step: int) -> str:
        """Saves everything under `step` and returns the prefix.

        The checkpoint appears only when complete.
        """
        with self._writing(self._folder, step):
            return self._manager.save(checkpoint_number=step)

    @contextlib.contextmanager
    def _writing(self, folder: str, step: int) -> Iterator[None]:
        """Deletes the parts of a checkpoint that cannot be completed, and a worker's copy."""
        what = f"the checkpoint of step {step} in {folder}"
        try:
            with files.space_for(what):
                yield
        except (StoppedError, tf.errors.OpError) as error:
            _delete(folder, lambda s, _: s == step)
            last = f"The last one is {self.latest()}." if self.latest() else "There is none yet."
            if isinstance(error, StoppedError):
                raise StoppedError(f"{error} {last}") from error
            raise AlbertError(f"Cannot write {what}: {first_line(error)}. {last}") from error
        if not self._writes and tf.io.gfile.exists(self._scratch):
            tf.io.gfile.rmtree(self._scratch)

    def _restore_best(self) -> None:
        folder = os.path.join(self._output_dir, BEST)
        try:
            self.best = read_best(folder)
            if self.best:
                check_checkpoint(os.path.join(folder, self.best.checkpoint))
        except DamagedError as error:
            print(f"{error} These best weights are discarded; the next evaluation is the best.")
            self.forget_best()
        if self._writes:
            self._delete_other_best(self.best.step if self.best else None)

    def save_best(self, step: int, metric: str, value: float, data: str = "") -> None:
        """Saves the weights as the best so far, and deletes the previous best.

        Args:
          step, metric, value, data: see BestRecord.
        """
        record = BestRecord(step, metric, value, f"ckpt-{step}", data)
        with self._writing(self._best_folder, step):
            self._best_checkpoint.write(os.path.join(self._best_folder, record.checkpoint))
            if self._writes:
                # The weights come before the record that names them; the old ones go last.
                record.save(self._best_folder)
        self.best = record
        if self._writes:
            self._delete_other_best(step)

    def _delete_other_best(self, step: int | None) -> None:
        """Deletes all best weights but those of `step`, and parts of unfinished ones."""
        files.remove_temporary(self._best_folder)
        _delete(self._best_folder, lambda s, name: s != step or name.endswith("_temp"))

    def forget_best(self) -> None:
        """Deletes the best weights."""
        self.best = None
        if self._writes and tf.io.gfile.exists(self._best_folder):
            tf.io.gfile.rmtree(self._best_folder)


def _delete(folder: str, which: Callable[[int, str], bool]) -> None:
    """Deletes files of checkpoints, and temporary folders of unfinished ones.

    Args:
      folder: of checkpoints; may be missing.
      which: given the step and the name, returns whether to delete it.
    """
    listed = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    names = [name.rstrip("/") for name in listed]
    # Indexes first: without its index, a checkpoint does not count.
    for name in sorted(names, key=lambda name: not name.endswith(".index")):
        step, path = step_of(name), os.path.join(folder, name)
        if step is None or not which(step, name):
            continue
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        else:
            tf.io.gfile.remove(path)


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
