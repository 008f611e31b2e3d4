# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the run's own, the best weights, and weights to start from.

Weights are stored under their official names (`named_weights()`), so a checkpoint outlives changes
of the Python code, and checkpoints of the TF1 release are read by the same names.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import textwrap
from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import AlbertError

CHECKPOINTS = "checkpoints"
BEST = "best"
_BEST_RECORD = "best.json"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_WEIGHTS = "weights/"
#: Suffixes and names that a TF1 training checkpoint holds besides the weights.
_TF1_STATE = ("/adam_m", "/adam_v", "global_step")


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
      state: further variables to save, by name.
      keep_max: checkpoints kept in `checkpoints/`.
      writes: False on workers other than the chief: they take part in saving (a collective
        operation), into a folder that is deleted again.
    """

    def __init__(
        self,
        output_dir: str,
        named_weights: Mapping[str, tf.Variable],
        optimizer: tf.keras.optimizers.legacy.Optimizer,
        state: Mapping[str, tf.Variable],
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
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, self._folder, max_to_keep=keep_max, checkpoint_name="ckpt"
        )
        self._output_dir = output_dir

    def latest(self) -> str | None:
        """Prefix of the newest complete checkpoint, None if there is none."""
        return tf.train.latest_checkpoint(os.path.join(self._output_dir, CHECKPOINTS))

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
                f"({_first_line(error)}); delete it to go on from an older one."
            ) from error

    def save(self, step: int) -> str:
        """Saves everything under `step`; the checkpoint appears only when complete."""
        try:
            path = self._manager.save(checkpoint_number=step)
        except tf.errors.OpError as error:
            raise AlbertError(
                f"The checkpoint of step {step} cannot be written to {self._folder} "
                f"({_first_line(error)}); the last good one is {self.latest()}."
            ) from error
        self._clean_up()
        return path

    def best(self) -> dict[str, float | str] | None:
        """The record of the best evaluation: step, metric, value, checkpoint."""
        path = os.path.join(self._output_dir, BEST, _BEST_RECORD)
        return files.read_json(path) if tf.io.gfile.exists(path) else None

    def save_best(self, step: int, metric: str, value: float) -> None:
        """Saves the weights as the best so far and deletes the former best."""
        name = f"ckpt-{step}"
        self._best.write(os.path.join(self._best_folder, name))
        if self._writes:
            # The record is written after what it names, and what it no longer names goes last.
            record = {"step": step, "metric": metric, "value": value, "checkpoint": name}
            files.write_json(os.path.join(self._best_folder, _BEST_RECORD), record)
            for other in tf.io.gfile.glob(os.path.join(self._best_folder, "ckpt-*")):
                if not os.path.basename(other).startswith(f"{name}."):
                    tf.io.gfile.remove(other)
        self._clean_up()

    def forget_best(self) -> None:
        """Deletes the best weights, which an earlier run left that saved no checkpoint."""
        if tf.io.gfile.exists(self._best_folder):
            tf.io.gfile.rmtree(self._best_folder)

    def _clean_up(self) -> None:
        if not self._writes:
            for folder in (self._folder, self._best_folder):
                if tf.io.gfile.exists(folder):
                    tf.io.gfile.rmtree(folder)


def find_checkpoint(path: str) -> str:
    """Resolves a checkpoint prefix, a folder of checkpoints or an output directory.

    An output directory gives its best weights if there are any, else its newest checkpoint.

    Raises:
      AlbertError: there is no checkpoint.
    """
    if tf.io.gfile.exists(path + ".index"):
        return path
    record = os.path.join(path, BEST, _BEST_RECORD)
    if tf.io.gfile.exists(record):
        return os.path.join(path, BEST, files.read_json(record)["checkpoint"])
    record = os.path.join(path, _BEST_RECORD)
    if tf.io.gfile.exists(record):
        return os.path.join(path, files.read_json(record)["checkpoint"])
    for folder in (os.path.join(path, CHECKPOINTS), path):
        prefix = tf.train.latest_checkpoint(folder)
        if prefix:
            return prefix
    raise AlbertError(
        f"There is no checkpoint at {path}; give an output directory of a run or the name of a "
        "checkpoint without its .index ending."
    )


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What `load_weights` found: names by outcome."""

    checkpoint: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def __str__(self) -> str:
        """A few lines for the terminal."""
        lines = [f"Weights from {self.checkpoint}: {len(self.matched)} variables matched"]
        for what, names in (
            ("not in the checkpoint, left at random", self.missing),
            ("in the checkpoint, not in the model", self.unexpected),
        ):
            if names:
                shown = f"{what}: {', '.join(_by_scope(names))}"
                indent = {"initial_indent": "  ", "subsequent_indent": "    "}
                lines += textwrap.wrap(shown, 78, break_on_hyphens=False, **indent)
        return "\n".join(lines)


def _by_scope(names: Sequence[str]) -> list[str]:
    """Names, those of a common scope (two levels) taken together where they are many."""
    scopes = collections.Counter("/".join(name.split("/")[:2]) for name in names)
    grouped = {
        name: f"{scope}/* ({scopes[scope]})" if scopes[scope] > 2 else name
        for name in names
        for scope in ["/".join(name.split("/")[:2])]
    }
    return list(dict.fromkeys(grouped.values()))


def load_weights(
    path: str, named_weights: Mapping[str, tf.Variable], required_prefix: str = "bert/"
) -> LoadReport:
    """Assigns weights from a checkpoint by name.

    Args:
      path: anything `find_checkpoint` resolves.
      named_weights: the model's weights by official name.
      required_prefix: every variable below it must be in the checkpoint. Others (task heads) may
        be missing, or be of another shape, and then keep their initial values.

    Raises:
      AlbertError: there is no readable checkpoint, or a required variable is missing or of
        another shape.
    """
    prefix = find_checkpoint(path)
    try:
        reader = tf.train.load_checkpoint(prefix)
        stored = _stored_names(reader.get_variable_to_shape_map())
        matched, missing = [], []
        for name, variable in named_weights.items():
            key = stored.pop(name, None)
            shape = None if key is None else reader.get_variable_to_shape_map()[key]
            if shape == variable.shape.as_list():
                variable.assign(reader.get_tensor(key))
                matched.append(name)
            else:
                note = "" if key is None else f" (shape {shape}, not {variable.shape.as_list()})"
                missing.append(name + note)
    except (IndexError, ValueError, tf.errors.OpError) as error:  # IndexError: data cut off.
        raise AlbertError(
            f"The checkpoint {prefix} cannot be read: {_first_line(error)}."
        ) from error
    required = [name for name in missing if name.startswith(required_prefix)]
    if required:
        raise AlbertError(
            f"The checkpoint {prefix} does not fit the model; it lacks {', '.join(required[:5])}"
            + (f" and {len(required) - 5} more" if len(required) > 5 else "")
            + ". Use the configuration the checkpoint was trained with."
        )
    return LoadReport(prefix, tuple(matched), tuple(missing), tuple(sorted(stored)))


def _stored_names(keys: Mapping[str, list[int]]) -> dict[str, str]:
    """Official weight names in a checkpoint, of ours or of the TF1 release, to their keys."""
    ours = {k for k in keys if k.startswith(_WEIGHTS) and k.endswith(_VALUE)}
    if ours:
        plain = {k: k[len(_WEIGHTS) : -len(_VALUE)] for k in ours if "/.OPTIMIZER_SLOT/" not in k}
        # Object-based checkpoints escape "/" in names as ".S" and "." as "..".
        return {n.replace(".S", "/").replace("..", "."): k for k, n in plain.items()}
    return {k: k for k in keys if not k.endswith(_TF1_STATE) and not k.startswith("_CHECKPOINT")}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
