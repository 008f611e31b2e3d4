# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Identifies a run by everything that determines its final weights.

`run_config.json` and `training_data.json` in the output directory record it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown, shown_names
from albert_tf.io.removal import owner_id
from albert_tf.io.storage import exists
from albert_tf.training.monitors import METRICS_FILE
from albert_tf.training.specs import BFLOAT16, FLOAT16, FLOAT32
from albert_tf.weights.checkpoint_files import BEST, CHECKPOINTS
from albert_tf.weights.model_folders import RUN_CONFIG, SEEDS_FILE, TASK_FILE

if TYPE_CHECKING:
    from albert_tf.training.specs import RunConfig, TrainSpec
    from albert_tf.training.task import Task

TRAINING_DATA = "training_data.json"
#: Differences that an error lists.
_SHOWN = 4
#: What a run leaves in its folder, beside run_config.json.
_OF_A_RUN = (CHECKPOINTS, BEST, TASK_FILE, SEEDS_FILE, METRICS_FILE)
_DIGEST = re.compile(r"[0-9a-f]{32,}")


class RunIdentity:
    """The settings and the data of a run.

    Args:
      config: the settings.
      task: the model and the loss.
      train_spec: the data and the number of steps.
      frozen: names of the weights that are not trained.
    """

    def __init__(
        self, config: RunConfig, task: Task, train_spec: TrainSpec, frozen: Sequence[str] = ()
    ) -> None:
        settings = {name: getattr(config, name) for name in config.DECISIVE}
        self._values: dict[str, dict[str, Any]] = {
            "run": {**settings, "frozen": list(frozen)},
            "task": task.description(),
            "train": {
                "max_steps": train_spec.max_steps,
                "time_budget": train_spec.time_budget,
                "data": train_spec.data_fingerprint,
            },
        }
        self._data = dict(train_spec.data_description)

    @property
    def id(self) -> str:
        """Identifies the run; part of the names of its temporary files."""
        return owner_id("run", self._values)

    def write(self, folder: str) -> None:
        """Writes both files; run_config.json, which claims the folder, last, with TensorFlow's
        version."""
        values = {**self._values, "tensorflow": tf.__version__}
        files.write_json(os.path.join(folder, TRAINING_DATA), self._data)
        files.write_json(os.path.join(folder, RUN_CONFIG), values)

    def is_in(self, folder: str) -> bool:
        """Returns whether an output directory holds this run.

        Raises:
          AlbertError: it holds another run, or the remains of one.
        """
        if exists(os.path.join(folder, RUN_CONFIG)):
            self.check(folder)
            return True
        there = [name for name in _OF_A_RUN if exists(os.path.join(folder, name))]
        if there:
            best = os.path.join(folder, BEST)
            start = f", or start from its weights with `init_checkpoint`={best}"
            raise AlbertError(
                f"{folder} holds {shown_names(there, 80)} of a run, but no {RUN_CONFIG} that says "
                f"of which; give another `output_dir`{start if BEST in there else ''}."
            )
        return False

    def hyperparameters(self) -> dict[str, bool | int | float | str]:
        """Returns the settings that have one value each, also those of the model and the task."""
        task = self._values["task"]
        config = task.get("config", {})
        values = {**config, **task, **self._values["run"]}
        values["task"] = values.pop("name", None)
        values["max_steps"] = self._values["train"]["max_steps"]
        return {k: v for k, v in values.items() if isinstance(v, (bool, int, float, str))}

    def check(self, folder: str) -> None:
        """Compares this run with the one in an output directory.

        Raises:
          AlbertError: they differ; the error lists how. Or run_config.json is damaged.
        """
        recorded = recorded_run(folder)
        old, new = recorded["task"].get("name"), self._values["task"].get("name")
        if old != new:
            raise AlbertError(
                f"{folder} holds a run of another task ({shown(old)}, not {shown(new)}); give "
                "another `output_dir`."
            )
        differences: list[str] = []
        for part, values in self._values.items():
            for name, new in values.items():
                old = recorded[part].get(name)
                if old == new:
                    continue
                if (part, name) == ("train", "data"):
                    differences += self._data_differences(folder, str(old), new)
                else:
                    differences += _differences(old, new, name, setting=True)
        if differences:
            count = len(differences) - _SHOWN
            more = f"; and {count} more" if count > 0 else ""
            raise AlbertError(
                f"{folder} holds another run ({'; '.join(differences[:_SHOWN])}{more}); give "
                "another `output_dir`, or the same settings to resume it. A new run can start from "
                f"its weights: `init_checkpoint`={folder}."
            )

    def _data_differences(self, folder: str, old: str, new: str) -> Iterator[str]:
        """Describes how the training data of two fingerprints differ, as far as is known."""
        path = os.path.join(folder, TRAINING_DATA)
        recorded = files.read_object(path) if files.exists(path) else {}
        differences = _differences(recorded, self._data) if recorded and self._data else ()
        differences = [f"training data: {difference}" for difference in differences]
        if recorded.get("order_version") != self._data.get("order_version"):
            yield "another version of albert_tf reads the training data in another order"
        elif differences:
            yield from differences[:2]
        elif old.partition("-")[0] == new.partition("-")[0]:
            yield "training data: the same records, padded to other lengths or masked otherwise"
        else:
            yield "training data: other records"


def recorded_run(folder: str) -> dict[str, dict[str, Any]]:
    """Returns the record of the run in an output directory: `run`, `task` and `train`.

    Raises:
      AlbertError: run_config.json is missing or damaged.
    """
    path = os.path.join(folder, RUN_CONFIG)
    recorded = files.read_object(path, "run configuration")
    for part in ("run", "task", "train"):
        if not isinstance(recorded.get(part), dict):
            raise AlbertError(
                f"The run configuration {path} is damaged: it lacks {part!r}. Put it back, or "
                "give another `output_dir`."
            )
    return recorded


def recorded_precision(folder: str) -> str | None:
    """Returns the precision of the run in an output directory; None if there is no run."""
    path = os.path.join(folder, RUN_CONFIG)
    run = files.read_object(path).get("run") if exists(path) else None
    precision = run.get("precision") if isinstance(run, Mapping) else None
    return precision if precision in (FLOAT32, BFLOAT16, FLOAT16) else None


def version_note(folder: str) -> str | None:
    """Returns a note for the user if a run began with another TensorFlow, else None.

    `RunIdentity.check` does not compare versions: any TensorFlow can resume the run.
    """
    first = files.read_object(os.path.join(folder, RUN_CONFIG)).get("tensorflow")
    if not isinstance(first, str) or first == tf.__version__:
        return None
    return (
        f"This run began with TensorFlow {_short(first)} and is resumed with {tf.__version__}. The "
        "two round differently, so results can differ slightly from those of an uninterrupted run."
    )


def _differences(old: Any, new: Any, name: str = "", setting: bool = False) -> Iterator[str]:
    """Describes how two values differ, mappings key by key; puts a setting's name in backticks."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*new, *old]):
            if old.get(key) != new.get(key):
                yield from _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))
        return
    name = f"`{name}`" if setting else name
    sides = _short(old), _short(new)
    if isinstance(old, list) and isinstance(new, list):
        only = [[x for x in a if x not in b] for a, b in ((old, new), (new, old))]
        sides = [shown_names(map(_short, values), 80) for values in only]
        if any(only):
            yield f"{name}: only there {sides[0]}, only here {sides[1]}"
        else:
            yield f"{name} in another order"
    elif sides[0] == sides[1] or any(_DIGEST.fullmatch(side) for side in sides):
        yield f"another {name}"  # The values are digests, or look the same once shortened.
    else:
        yield f"{name}={sides[0]} there, {sides[1]} here"


def _short(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 64 else shown(value)
