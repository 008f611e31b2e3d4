# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""This project's own training step, in another environment. See protocol.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from benchmarks.peers import protocol
from benchmarks.random_step import RandomStep


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """The step that `run_pretraining.py` makes, on random records of the batch's shape."""
    batch_size, seq_length = np.load(setup["batch"])["input_ids"].shape
    config = AlbertConfig.from_dict(setup["config"])
    step = RandomStep(config, seq_length, batch_size, setup["policy"])
    return lambda steps: float(step(steps)["loss"][-1])


if __name__ == "__main__":
    protocol.serve(build, ("tensorflow", "numpy"))
