# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What decides the weights that a run ends with; by it a run is told from another one.

`run_config.json` and `training_data.json` in the output directory keep it.
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
from albert_tf.weights.checkpoint_files import has_checkpoint

if TYPE_CHECKING:
    from albert_tf.training.specs import RunConfig, TrainSpec
    from albert_tf.training.task import Task

RUN_CONFIG = "run_config.json"
TRAINING_DATA = "training_data.json"
#: Differences that an error names.
_SHOWN = 4
_DIGEST = re.compile(r"[0-9a-f]{32,}")


class RunIdentity:
    """The settings and the data of a run.

    Args:
      config: how it trains.
      task: what it trains.
      train_spec: what on, and for how long.
      frozen: names of the weights that are not trained.
    """

    def __init__(
        self, config: RunConfig, task: Task, train_spec: TrainSpec, frozen: Sequence[str] = ()
    ) -> None:
        self._values: dict[str, dict[str, Any]] = {
            # Runs from before weights could be frozen have no such entry.
            "run": {**config.decisive(), "frozen": list(frozen) or None},
            "task": task.description(),
            "train": {"max_steps": train_spec.max_steps, "data": train_spec.data_fingerprint},
        }
        self._data = dict(train_spec.data_description)

    def write(self, folder: str) -> None:
        """Writes both files; the first one also has the version of TensorFlow."""
        values = {**self._values, "tensorflow": tf.__version__}
        files.write_json(os.path.join(folder, RUN_CONFIG), values)
        files.write_json(os.path.join(folder, TRAINING_DATA), self._data)

    def check(self, folder: str) -> None:
        """Compares with the files of a run that is to be resumed.

        Raises:
          AlbertError: it is another run; says in what. Or run_config.json is damaged.
        """
        path = os.path.join(folder, RUN_CONFIG)
        held = files.read_object(path, "run configuration")
        for part in self._values:
            if not isinstance(held.get(part), dict):
                raise AlbertError(
                    f"The run configuration {path} is damaged: it lacks {part!r}. Put it back, or "
                    "give another --output_dir."
                )
        task, here = held["task"].get("name"), self._values["task"].get("name")
        if task != here:
            raise AlbertError(
                f"{folder} holds a run of another task ({shown(task)}, not {shown(here)}); give "
                "another --output_dir."
            )
        found = [
            difference
            for part, values in self._values.items()
            for name, value in values.items()
            if held[part].get(name) != value
            for difference in (
                self._data_differences(folder, str(held[part].get(name)), value)
                if (part, name) == ("train", "data")
                else _differences(held[part].get(name), value, name, setting=True)
            )
        ]
        if found:
            more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise AlbertError(
                f"{folder} holds another run ({'; '.join(found[:_SHOWN])}{more}); give another "
                "--output_dir, or the same settings to resume it."
            )

    def _data_differences(self, folder: str, held: str, here: str) -> Iterator[str]:
        """What differs between the training data of two fingerprints, as far as is known."""
        path = os.path.join(folder, TRAINING_DATA)
        there = files.read_object(path) if tf.io.gfile.exists(path) else {}
        found = list(_differences(there, self._data)) if there and self._data else []
        if there.get("order_version") != self._data.get("order_version"):
            yield "another version of albert_tf reads the training data in another order"
        elif found:
            yield from (f"training data: {difference}" for difference in found[:2])
        elif held.partition("-")[0] == here.partition("-")[0]:
            yield "training data: the same records, padded to other lengths or masked otherwise"
        else:
            yield "training data: other records"


def recorded_precision(folder: str) -> str | None:
    """The precision of the run in an output directory; None if there is none, or no telling."""
    if not has_checkpoint(folder):
        return None
    try:
        run = files.read_object(os.path.join(folder, RUN_CONFIG)).get("run")
    except AlbertError:
        return None  # If the run is resumed, `RunIdentity.check` says what is wrong.
    precision = run.get("precision") if isinstance(run, Mapping) else None
    return precision if precision in ("float32", "mixed_bfloat16") else None


def version_note(folder: str) -> str | None:
    """Returns a note for the user if a run began with another TensorFlow, otherwise None.

    A run can be resumed with any TensorFlow: `RunIdentity.check` does not compare versions.
    """
    begun = files.read_object(os.path.join(folder, RUN_CONFIG)).get("tensorflow")
    if not isinstance(begun, str) or begun == tf.__version__:
        return None
    return (
        f"This run began with TensorFlow {_short(begun)} and is resumed with {tf.__version__}. The "
        "two round differently, so results can differ slightly from those of an uninterrupted run."
    )


def _differences(there: Any, here: Any, name: str = "", setting: bool = False) -> Iterator[str]:
    """Says how two values differ, or several by name; that of a setting is put in backticks."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in dict.fromkeys([*here, *there]):
            if there.get(key) != here.get(key):
                yield from _differences(there.get(key), here.get(key), f"{name}.{key}".strip("."))
        return
    name = f"`{name}`" if setting else name
    sides = _short(there), _short(here)
    if isinstance(there, list) and isinstance(here, list):
        only = [[x for x in a if x not in b] for a, b in ((there, here), (here, there))]
        sides = [shown_names(map(_short, values), 80) for values in only]
        if not any(only):
            yield f"{name} in another order"
            return
        yield f"{name}: only there {sides[0]}, only here {sides[1]}"
    elif sides[0] == sides[1] or any(_DIGEST.fullmatch(side) for side in sides):
        yield f"another {name}"  # Nobody can compare digests, or what is cut off.
    else:
        yield f"{name}={sides[0]} there, {sides[1]} here"


def _short(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 64 else shown(value)
