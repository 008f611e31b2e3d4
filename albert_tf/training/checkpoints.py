# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the run's own, the best weights, and weights to start from.

Weights are stored under their official names (`named_weights()`), so a checkpoint outlives changes
of the Python code, and checkpoints of the TF1 release are read by the same names.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, StoppedError
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
from albert_tf.weights.source import LoadReport, Source, assign_weights, first_line

_Memory = tf.train.experimental.PythonState


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
      state: what else to save, by name. A PythonState takes "{}" for nothing, which it is given
        for a checkpoint of before there was such a state.
      keep_max: checkpoints kept in `checkpoints/`.
      writes: False on workers other than the chief: they take part in saving (a collective
        operation), into a folder that is deleted again.
    """

    def __init__(
        self,
        output_dir: str,
        named_weights: Mapping[str, tf.Variable],
        optimizer: keras.optimizers.legacy.Optimizer,
        state: Mapping[str, tf.Variable | _Memory],
        keep_max: int,
        writes: bool = True,
    ) -> None:
        self._writes = writes
        # If a worker is killed, the chief deletes its folder as a temporary one in the next run.
        self._aside = os.path.join(output_dir, f"worker.tmp-{uuid.uuid4().hex[:8]}")
        folder = output_dir if writes else self._aside
        self._folder = os.path.join(folder, CHECKPOINTS)
        self._best_folder = os.path.join(folder, BEST)
        weights = _trackable(named_weights)
        self._parts = {"weights": weights, "optimizer": optimizer, **state}
        self._checkpoint = tf.train.Checkpoint(**self._parts)
        self._best = tf.train.Checkpoint(weights=weights)
        self._output_dir, self._keep_max = output_dir, keep_max
        self._best_record: BestRecord | None = None

    @functools.cached_property
    def _manager(self) -> tf.train.CheckpointManager:
        # Made when first needed: it reads the list of checkpoints, which must be in order then.
        return tf.train.CheckpointManager(
            self._checkpoint, self._folder, max_to_keep=self._keep_max, checkpoint_name="ckpt"
        )

    def latest(self) -> str | None:
        """Prefix of the newest checkpoint, which may be damaged; None if there is none."""
        return next(reversed(self.kept().values()), None)

    def kept(self) -> dict[int, str]:
        """Prefixes of the checkpoints by step, in ascending order; some may be damaged."""
        prefixes, _ = newest_first(os.path.join(self._output_dir, CHECKPOINTS))
        steps = {step_of(prefix): prefix for prefix in prefixes}
        steps.pop(None, None)
        return dict(sorted(steps.items()))

    def begin(self) -> None:
        """Deletes what an earlier run left that saved no checkpoint."""
        self.forget_best()
        self.forget_after(-1)

    def restore_newest(self) -> None:
        """Restores the newest good checkpoint, and the record of the best weights.

        Damaged ones are named, and deleted when an older one has been restored.

        Raises:
          AlbertError: there is no good one, or the newest good one does not fit this run. Then
            nothing has changed in the folder.
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
                print(f"{text} Going on from {prefix}.")
            self.forget_after(step)
            self._take_up_best()
            return
        raise AlbertError(
            f"{' '.join(faults)} There is no good checkpoint in {folder}; put one back, or give "
            "another --output_dir."
        )

    def forget_after(self, step: int) -> None:
        """Deletes the checkpoints after that of `step`, and what is left of others.

        Left may be what was not finished, and what was not deleted whole.
        """
        if not self._writes:
            return
        kept = {number: path for number, path in self.kept().items() if number <= step}
        names = [os.path.basename(path) for path in kept.values()]
        # TensorFlow's list of checkpoints, for which it has no function of public use.
        lines = [f'model_checkpoint_path: "{name}"' for name in names[-1:]]
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        lines += [f"all_model_checkpoint_timestamps: {time.time()}"] * len(names)
        # First they are no longer named, then they go: stopped in between, nothing is half there,
        # and the next run that is resumed deletes the rest.
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
          DamagedError: the checkpoint is damaged. What was restored of it is to be overwritten.
          AlbertError: it cannot be read, lacks a value, or has one of another shape.
        """
        tensors = open_checkpoint(prefix).get_variable_to_shape_map()
        try:
            # What Python remembers may be younger than the checkpoint; then it begins anew.
            memories = {k: v for k, v in self._parts.items() if isinstance(v, _Memory)}
            lacking = [k for k in memories if not any(t.startswith(f"{k}/") for t in tensors)]
            checkpoint = self._checkpoint
            if lacking:
                parts = {k: v for k, v in self._parts.items() if k not in lacking}
                checkpoint = tf.train.Checkpoint(**parts)
            checkpoint.restore(prefix).assert_existing_objects_matched()
            for name in lacking:
                memories[name].deserialize("{}")
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise AlbertError(
                f"The checkpoint {prefix} does not fit this run ({first_line(error)}); give "
                "another --output_dir."
            ) from error
        except (IndexError, tf.errors.OpError) as error:
            raise reading_error(prefix, error) from error

    def save(self, step: int) -> str:
        """Saves everything under `step`; the checkpoint appears only when complete."""
        with self._writing(self._folder, step):
            path = self._manager.save(checkpoint_number=step)
        self._clean_up()
        return path

    @contextlib.contextmanager
    def _writing(self, folder: str, step: int) -> Iterator[None]:
        """Deletes what was written of a checkpoint if it cannot be completed; says what is left."""
        what = f"the checkpoint of step {step} in {folder}"
        try:
            with files.space_for(what):
                yield
        except (StoppedError, tf.errors.OpError) as error:
            _delete(folder, lambda s, _: s == step)
            left = f"The last one is {self.latest()}." if self.latest() else "There is none yet."
            if isinstance(error, StoppedError):
                raise StoppedError(f"{error} {left}") from error
            raise AlbertError(f"Cannot write {what}: {first_line(error)}. {left}") from error

    def best(self) -> BestRecord | None:
        """The record of the best evaluation; None before the first."""
        return self._best_record

    def _take_up_best(self) -> None:
        folder = os.path.join(self._output_dir, BEST)
        try:
            self._best_record = read_best(folder)
            if self._best_record:
                check_checkpoint(os.path.join(folder, self._best_record.checkpoint))
        except DamagedError as error:
            print(f"{error} Forgetting these best weights: the next evaluation is the best.")
            self.forget_best()
        if self._writes:
            self._delete_other_best(self._best_record.step if self._best_record else None)

    def save_best(self, step: int, metric: str, value: float) -> None:
        """Saves the weights as the best so far and deletes the former best."""
        record = BestRecord(step, metric, value, f"ckpt-{step}")
        with self._writing(self._best_folder, step):
            self._best.write(os.path.join(self._best_folder, record.checkpoint))
            if self._writes:
                # The record is written after what it names, and what it no longer names goes last.
                record.save(self._best_folder)
        self._best_record = record
        if self._writes:
            self._delete_other_best(step)
        self._clean_up()

    def _delete_other_best(self, step: int | None) -> None:
        """Deletes all but the best weights of `step`, and what is left of unfinished ones."""
        files.remove_temporary(self._best_folder)
        _delete(self._best_folder, lambda s, name: s != step or name.endswith("_temp"))

    def forget_best(self) -> None:
        """Deletes the best weights."""
        self._best_record = None
        if self._writes and tf.io.gfile.exists(self._best_folder):
            tf.io.gfile.rmtree(self._best_folder)

    def _clean_up(self) -> None:
        if not self._writes and tf.io.gfile.exists(self._aside):
            tf.io.gfile.rmtree(self._aside)


def _delete(folder: str, which: Callable[[int, str], bool]) -> None:
    """Deletes those files of checkpoints, and folders of unfinished ones, in a folder.

    Args:
      folder: of checkpoints.
      which: told the step and the name.
    """
    there = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    names = [name.rstrip("/") for name in there]
    # Indexes first: without one, a checkpoint is none.
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
      path: anything `albert_tf.weights.load.open_source` recognises, or what it gives.
      named_weights: the model's weights by official name.
      whole: every variable must be in the checkpoint. Otherwise task heads may be missing, or be
        of another shape, and the pooler may be missing; they keep their initial values.

    Raises:
      AlbertError: there is no readable checkpoint, a required variable is missing or of another
        shape, or the checkpoint has layers that the model would leave out.
    """
    source = path if isinstance(path, Source) else open_source(path)
    report = assign_weights(source, named_weights)
    required = report.missing if whole else report.missing_of_encoder
    left_out = report.unexpected_of_encoder
    if required or left_out:
        difference = report.difference_in_groups
        settings = " (num_hidden_groups, inner_group_num and parameter_sharing)"
        parts = [
            difference,
            f"it lacks {_some(required)}" if required else "",
            f"it also has {_some(left_out)}" if left_out else "",
        ]
        raise AlbertError(
            f"The checkpoint {report.checkpoint} does not fit the model; "
            f"{'; '.join(filter(None, parts))}. Use the configuration the checkpoint was trained "
            f"with{settings if difference else ''}."
        )
    return report


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
