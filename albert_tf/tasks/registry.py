# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds a task by its name. Free of TensorFlow until a task is found."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import shown

if TYPE_CHECKING:
    from albert_tf.tasks.base import FineTuningTask


class BuiltIn(NamedTuple):
    """A task that comes with the library.

    Attributes:
      name: of the task, `Task.name`, as in task.json.
      module: that defines it.
      export_type: what export_tfhub.py calls it.
      has_lite: whether `FineTuningTask.export_lite` gives a TensorFlow Lite model.
    """

    name: str
    module: str
    export_type: str
    has_lite: bool = False


BUILT_IN = (
    BuiltIn("text_classification", "albert_tf.tasks.classification.task", "classifier", True),
    BuiltIn("squad", "albert_tf.tasks.squad.task", "squad"),
    BuiltIn("multiple_choice", "albert_tf.tasks.multiple_choice.task", "multiple_choice"),
)
#: Classes by name; each FineTuningTask enters itself when it is defined.
_CLASSES: dict[str, type[FineTuningTask]] = {}


def register(task: type[FineTuningTask]) -> None:
    """Makes a task known by its name."""
    _CLASSES[task.name] = task


def find_task(name: object) -> type[FineTuningTask] | None:
    """The task of a name; None if none is known.

    Tasks of a program's own are known once their module has been imported.
    """
    for task in BUILT_IN:
        if task.name == name:
            importlib.import_module(task.module)
    return _CLASSES.get(name) if isinstance(name, str) else None


def task_by_export_type(export_type: str) -> type[FineTuningTask]:
    """The task that export_tfhub.py calls so.

    Raises:
      AlbertError: there is none.
    """
    for task in BUILT_IN:
        if task.export_type == export_type:
            return find_task(task.name)
    raise AlbertError(f"There is no task to export as {shown(export_type)}.")
