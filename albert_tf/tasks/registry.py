# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The tasks by name. Imports TensorFlow only together with a task."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from albert_tf.tasks.base import FineTuningTask


#: The modules of the built-in tasks by `Task.name`, as in task.json.
_BUILT_IN = {
    "text_classification": "albert_tf.tasks.classification.task",
    "squad": "albert_tf.tasks.squad.task",
    "multiple_choice": "albert_tf.tasks.multiple_choice.task",
}
#: Classes by name; each FineTuningTask registers itself when it is defined.
_CLASSES: dict[str, type[FineTuningTask]] = {}


def register(task: type[FineTuningTask]) -> None:
    """Adds a task, which `find_task` then finds by its name."""
    _CLASSES[task.name] = task


def find_task(name: object) -> type[FineTuningTask] | None:
    """Returns the task of a name, or None.

    Tasks outside the library are found once their module has been imported.
    """
    if not isinstance(name, str):
        return None
    if name in _BUILT_IN:
        importlib.import_module(_BUILT_IN[name])
    return _CLASSES.get(name)
