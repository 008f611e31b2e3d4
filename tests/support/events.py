# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads what a run wrote for TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

PAGE = Path(__file__).resolve().parents[2] / "docs/tensorboard.md"


def summaries(output_dir: Path | str, split: str) -> Iterator[tuple[int, Any]]:
    """Yields step and value of all summaries of a split."""
    for path in sorted(Path(output_dir, "events", split).glob("*tfevents*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                yield event.step, value


def undocumented_tags(output_dir: Path | str, *splits: str) -> set[str]:
    """Returns the tags of scalars that docs/tensorboard.md does not name.

    Metrics of an evaluation are those of the task; the page does not list them.
    """
    written = {value.tag for split in splits for _, value in summaries(output_dir, split)}
    assert written
    return written - set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8")))
