# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run changed when it went back to an earlier checkpoint after a divergence.

`rollbacks.json` in the output directory tells it, so that a run that is resumed later goes on with
the same data and learning rate, and ends with the same weights as if it had not been interrupted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.training.divergence import Alarm, DivergenceDetector

ROLLBACKS = "rollbacks.json"
#: Each rollback multiplies the learning rate by this. PaLM's authors passed over data and left the
#: rate (Chowdhery et al., 2022, section 5.1), which is no help where the rate is to blame.
_RATE_FACTOR = 0.5
#: Rollbacks of one run.
MAX_ROLLBACKS = 3


class Rollbacks:
    """The rollbacks of one output directory.

    Args:
      output_dir: the run's folder.
      writes: False on workers other than the chief.
    """

    def __init__(self, output_dir: str, writes: bool) -> None:
        self._path, self._writes = os.path.join(output_dir, ROLLBACKS), writes
        self._entries: list[dict[str, Any]] = []

    @property
    def count(self) -> int:
        """How many there were; to be kept in checkpoints."""
        return len(self._entries)

    @property
    def learning_rate_factor(self) -> float:
        """What the schedule's learning rate is multiplied by."""
        return self._entries[-1]["learning_rate_factor"] if self._entries else 1.0

    @property
    def skipped_batches(self) -> int:
        """Global batches by which the data is ahead of the step."""
        return self._entries[-1]["skipped_batches"] if self._entries else 0

    def forget(self) -> None:
        """Deletes the record of an earlier run that saved no checkpoint."""
        if self._writes and tf.io.gfile.exists(self._path):
            tf.io.gfile.remove(self._path)

    def resume(self, step: int, count: int) -> None:
        """Takes up those that a checkpoint is subject to.

        Args:
          step: of the checkpoint.
          count: rollbacks before it was saved. Those that led back to it came after that, and any
            others will come again, as its steps do.
        """
        entries = files.read_json(self._path) if tf.io.gfile.exists(self._path) else []
        back = [i + 1 for i, entry in enumerate(entries) if i >= count and entry["to_step"] == step]
        self._entries = entries[: max([count, *back])]

    def target(self, alarm: Alarm, steps: Sequence[int]) -> int | None:
        """The checkpoint to go back to, of those of these steps; None if there is none.

        The newest one from before the divergence, or else the oldest. But one that has been gone
        back to before and led here again may be ill already: then the next older one.
        """
        good = sorted(step for step in steps if step <= alarm.onset) or sorted(steps)[:1]
        if len(good) > 1 and self._entries and self._entries[-1]["to_step"] == good[-1]:
            return good[-2]
        return good[-1] if good else None

    def add(self, alarm: Alarm, to_step: int) -> None:
        """Records that the run goes back to `to_step`, and on with the data after the alarm."""
        entry = {
            "cause": alarm.cause,
            "text": alarm.text,
            "step": alarm.step,
            "to_step": to_step,
            "learning_rate_factor": self.learning_rate_factor * _RATE_FACTOR,
            "skipped_batches": self.skipped_batches + alarm.step - to_step,
        }
        self._entries.append(entry)
        if self._writes:
            files.write_json(self._path, self._entries)


class DivergenceMemory(tf.train.experimental.PythonState):
    """What is known of divergences, as a part of checkpoints.

    Attributes:
      rollbacks: how many there were before the checkpoint that was restored.
    """

    def __init__(self, detector: DivergenceDetector, rollbacks: Rollbacks) -> None:
        super().__init__()
        self._detector, self._rollbacks = detector, rollbacks
        self.rollbacks = 0

    def serialize(self) -> str:
        """JSON of the detector's state and the number of rollbacks."""
        state = {"detector": self._detector.state(), "rollbacks": self._rollbacks.count}
        return json.dumps(state)

    def deserialize(self, serialized: str) -> None:
        """Restores the detector's state."""
        state = json.loads(serialized)
        self._detector.restore(state["detector"])
        self.rollbacks = state["rollbacks"]
