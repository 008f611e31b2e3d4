# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Identifies a run by everything that determines its final weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.removal import owner_id
from albert_tf.training.specs import RunConfig, TrainSpec
from albert_tf.training.task import Task
from albert_tf.weights.run_folder import TRAINING_DATA, RunFolder

#: Differences that an error lists.
_SHOWN = 4
_DIGEST = re.compile(r"[0-9a-f]{32,}")


class RunIdentity:
    """The settings and the data of a run.

    Args:
      config: the settings.
      task: the model and the loss.
      train_spec: the data and the number of steps.
      frozen: names of the weights that are not trained.

    Attributes:
      id: identifies the run; part of the names of its temporary files.
      data: describes the training data, for training_data.json.
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
        self.data = dict(train_spec.data_description)
        self.id = owner_id("run", self._values)

    @property
    def record(self) -> dict[str, object]:
        """What run_config.json holds: also TensorFlow's version, which is not compared."""
        return {**self._values, "tensorflow": tf.__version__}

    def hyperparameters(self) -> dict[str, bool | int | float | str]:
        """Returns the settings that have one value each, also those of the model and the task."""
        task = self._values["task"]
        values = {**task.get("config", {}), **task, **self._values["run"]}
        values["task"] = values.pop("name", None)
        values["max_steps"] = self._values["train"]["max_steps"]
        return {k: v for k, v in values.items() if isinstance(v, (bool, int, float, str))}

    def is_in(self, folder: RunFolder) -> bool:
        """Returns whether an output directory holds this run.

        Raises:
          AlbertError: it holds another run, the remains of one, or a damaged record. The error
            lists how two runs differ.
        """
        recorded = folder.recorded()
        if recorded is None:
            folder.check_no_remains()
            return False
        old, new = recorded["task"].get("name"), self._values["task"].get("name")
        if old != new:
            raise AlbertError(
                f"{folder} holds a run of another task ({short_repr(old)}, not "
                f"{short_repr(new)}); give "
                "another `output_dir`."
            )
        differences: list[str] = []
        for part, values in self._values.items():
            for name, new in values.items():
                old = recorded[part].get(name)
                if old != new and (part, name) == ("train", "data"):
                    differences += self._data_differences(folder, str(old), new)
                elif old != new:
                    differences += _differences(old, new, name, setting=True)
        if differences:
            count = len(differences) - _SHOWN
            more = f"; and {count} more" if count > 0 else ""
            raise AlbertError(
                f"{folder} holds another run ({'; '.join(differences[:_SHOWN])}{more}); give "
                "another `output_dir`, or the same settings to resume it. A new run can start from "
                f"its weights: `init_checkpoint`={folder}."
            )
        return True

    def _data_differences(self, folder: RunFolder, old: str, new: str) -> list[str]:
        """Describes how the training data of two fingerprints differ, as far as is known."""
        there = folder.has(TRAINING_DATA)
        recorded = files.read_object(folder.file(TRAINING_DATA)) if there else {}
        if recorded and self.data and recorded != self.data:
            listed = list(_differences(recorded, self.data))[:2]
        elif old.partition("-")[0] == new.partition("-")[0]:
            listed = ["the same records, padded to other lengths or masked otherwise"]
        else:
            listed = ["other records"]
        return [f"training data: {difference}" for difference in listed]


def version_note(folder: RunFolder) -> str | None:
    """Returns a note for the user if a run began with another TensorFlow, else None."""
    first = (folder.recorded() or {}).get("tensorflow")
    if first == tf.__version__:
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
        sides = [joined(map(_short, values), 80) for values in only]
        if any(only):
            yield f"{name}: only there {sides[0]}, only here {sides[1]}"
        else:
            yield f"{name} in another order"
    elif sides[0] == sides[1] or any(_DIGEST.fullmatch(side) for side in sides):
        yield f"another {name}"  # The values are digests, or look the same once shortened.
    else:
        yield f"{name}={sides[0]} there, {sides[1]} here"


def _short(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 64 else short_repr(value)
