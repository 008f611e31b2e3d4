# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The tasks by name. Imports TensorFlow only together with a task."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from albert_tf.tasks.base import FineTuningTask


class BuiltIn(NamedTuple):
    """A task of the library.

    Attributes:
      name: `Task.name`, as in task.json.
      module: the module that defines it.
      export_type: its name in export_tfhub.py.
    """

    name: str
    module: str
    export_type: str


BUILT_IN = (
    BuiltIn("text_classification", "albert_tf.tasks.classification.task", "classifier"),
    BuiltIn("squad", "albert_tf.tasks.squad.task", "squad"),
    BuiltIn("multiple_choice", "albert_tf.tasks.multiple_choice.task", "multiple_choice"),
)
#: Classes by name; each FineTuningTask registers itself when it is defined.
_CLASSES: dict[str, type[FineTuningTask]] = {}


def register(task: type[FineTuningTask]) -> None:
    """Adds a task, which `find_task` then finds by its name."""
    _CLASSES[task.name] = task


def find_task(name: object) -> type[FineTuningTask] | None:
    """Returns the task of a name, or None.

    Tasks outside the library are found once their module has been imported.
    """
    for task in BUILT_IN:
        if task.name == name:
            importlib.import_module(task.module)
    return _CLASSES.get(name) if isinstance(name, str) else None
