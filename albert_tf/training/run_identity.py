# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Identifies a run by everything that determines its final weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.files import plain_path
from albert_tf.io.json_values import joined
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
    data are not compared. `frozen` are the names of the weights that are not trained.
    """
    settings = {name: getattr(config, name) for name in config.DECISIVE}
    settings["init_checkpoint"] = plain_path(config.init_checkpoint)
    return {
        "run": {**settings, "frozen": list(frozen)},
        "task": task.description(),
        "train": {"max_steps": train_spec.max_steps, "data": train_spec.data_fingerprint},
        "data": dict(train_spec.data_description),
        "tensorflow": tf.__version__,
    }


def is_in(folder: RunFolder, record: Mapping[str, Any]) -> bool:
    """Returns whether an output directory holds the run with this record.

    Raises AlbertError if it holds another run, listing the differences, the remains of one, or a
    damaged record.
    """
    recorded = folder.recorded()
    if recorded is None:
        folder.check_no_remains()
        return False
    if differences := [x for part in IDENTITY for x in _differences(recorded[part], record[part])]:
        differences += _differences(recorded.get("data"), record["data"], "data")
        count = len(differences) - _SHOWN
        more = f"; and {count} more" if count > 0 else ""
        raise AlbertError(
            f"{folder} holds another run ({'; '.join(differences[:_SHOWN])}{more}); give another "
            "`output_dir`, or the same settings to resume it. A new run can start from its "
            f"weights: `init_checkpoint`={folder}."
        )
    return True


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Describes how two values differ, mappings key by key; puts names in backticks."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*new, *old]):
            if old.get(key) != new.get(key):
                yield from _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))
        return
    there, here = joined([old], 64), joined([new], 64)
    if there == here or _DIGEST.match(there) or _DIGEST.match(here):
        yield f"another `{name}`"  # The values are digests, or look the same once shortened.
    else:
        yield f"`{name}`={there} there, {here} here"
