# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Identifies a run by everything that determines its final weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.removal import owner_id
from albert_tf.training.specs import RunConfig, TrainSpec
from albert_tf.training.task import Task
from albert_tf.weights.run_folder import IDENTITY, RunFolder

#: Differences that an error lists.
_SHOWN = 4
_DIGEST = re.compile(r"[0-9a-f]{32,}")


def run_record(
    config: RunConfig, task: Task, train_spec: TrainSpec, frozen: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what run_config.json holds.

    The parts named in IDENTITY identify the run. TensorFlow's version and the description of the
    data are not compared.

    Args:
      config: the settings.
      task: the model and the loss.
      train_spec: the data and the number of steps.
      frozen: names of the weights that are not trained.
    """
    settings = {name: getattr(config, name) for name in config.DECISIVE}
    return {
        "run": {**settings, "frozen": list(frozen)},
        "task": task.description(),
        "train": {"max_steps": train_spec.max_steps, "data": train_spec.data_fingerprint},
        "data": dict(train_spec.data_description),
        "tensorflow": tf.__version__,
    }


def run_id(record: Mapping[str, Any]) -> str:
    """Returns the id of a run, a part of the names of its temporary files."""
    return owner_id("run", *(record[part] for part in IDENTITY))


def is_in(folder: RunFolder, record: Mapping[str, Any]) -> bool:
    """Returns whether an output directory holds the run with this record.

    Raises:
      AlbertError: it holds another run, the remains of one, or a damaged record. The error lists
        how two runs differ.
    """
    recorded = folder.recorded()
    if recorded is None:
        folder.check_no_remains()
        return False
    old, new = recorded["task"].get("name"), record["task"].get("name")
    if old != new:
        raise AlbertError(
            f"{folder} holds a run of another task ({short_repr(old)}, not {short_repr(new)}); "
            "give another `output_dir`."
        )
    differences: list[str] = []
    for part in IDENTITY:
        for name, new in record[part].items():
            old = recorded[part].get(name)
            if old != new and (part, name) == ("train", "data"):
                differences += _data_differences(recorded, record)
            elif old != new:
                differences += _differences(old, new, name, setting=True)
    if differences:
        count = len(differences) - _SHOWN
        more = f"; and {count} more" if count > 0 else ""
        raise AlbertError(
            f"{folder} holds another run ({'; '.join(differences[:_SHOWN])}{more}); give another "
            "`output_dir`, or the same settings to resume it. A new run can start from its "
            f"weights: `init_checkpoint`={folder}."
        )
    return True


def _data_differences(recorded: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """Describes how the training data differ, as far as is known."""
    listed = list(_differences(recorded.get("data"), record["data"]))[:2]
    listed = listed or ["other records, lengths or masks"]
    return [f"training data: {text}" for text in listed]


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
        there, here = (joined(map(_short, values), 80) for values in only)
        same = f"{name} in another order"
        yield f"{name}: only there {there}, only here {here}" if any(only) else same
    elif sides[0] == sides[1] or any(_DIGEST.fullmatch(side) for side in sides):
        yield f"another {name}"  # The values are digests, or look the same once shortened.
    else:
        yield f"{name}={sides[0]} there, {sides[1]} here"


def _short(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 64 else short_repr(value)
