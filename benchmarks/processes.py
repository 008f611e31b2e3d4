# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands that a benchmark runs and times."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Sequence
from typing import Any


def run_timed(
    command: Sequence[str], **options: Any
) -> tuple[subprocess.CompletedProcess, tuple[float, float]]:
    """Runs a command; returns what it left, and its wall and processor seconds.

    Args:
      command: the program and its arguments.
      **options: of subprocess.run.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run(command, **options)
    wall, after = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, (wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
