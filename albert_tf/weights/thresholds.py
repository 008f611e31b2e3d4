# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The thresholds that a task decides by, in a file beside the weights they were found for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from albert_tf.errors import AlbertError
from albert_tf.huggingface import CONFIG
from albert_tf.io import files
from albert_tf.io.json_values import joined
from albert_tf.settings import check_number
from albert_tf.weights.run_folder import RunFolder, find_checkpoint, find_task, has_checkpoint

THRESHOLDS_FILE = "thresholds.json"


def save_thresholds(folder: RunFolder, thresholds: Mapping[str, float]) -> None:
    """Keeps thresholds with the model in a folder."""
    values = {"thresholds": thresholds, "checkpoint": _checkpoint(folder)}
    files.write_json(folder.file(THRESHOLDS_FILE), values)


def load_thresholds(
    folder: RunFolder, names: Sequence[str] | None = None
) -> dict[str, float] | None:
    """Returns the thresholds kept with the model in a folder.

    Raises AlbertError for damaged ones, and for others than those with `names`, if these are given.

    None if there are none, or only those of other weights, from which training has gone on. A
    Hugging Face folder has them in its config.json.
    """
    is_ours = folder.has(THRESHOLDS_FILE)
    path = folder.file(THRESHOLDS_FILE if is_ours else CONFIG)
    kept = files.read_object(path, "file of thresholds") if is_ours else find_task(folder.path)
    thresholds = kept.get("thresholds")
    wanted = thresholds if names is None else names
    if not wanted or kept.get("checkpoint") not in (None, _checkpoint(folder)):
        return None
    if not is_ours and thresholds is None:
        return None
    if not isinstance(thresholds, dict) or {*thresholds} != {*wanted}:
        raise AlbertError(f"{path} must have `thresholds` for {joined(wanted)}; evaluate again.")
    for name, value in thresholds.items():
        check_number(f"The threshold of {name!r} in {path}", value, -1e38)
    return thresholds


def _checkpoint(folder: RunFolder) -> str | None:
    """Returns the name of the weights that are used, relative to the folder; None without any."""
    path = folder.path
    return os.path.relpath(find_checkpoint(path), path) if has_checkpoint(path) else None
