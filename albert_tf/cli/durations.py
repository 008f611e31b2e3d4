# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags for lengths of time, such as 90s, 20m, 1.5h or 2d."""

from __future__ import annotations

import math
import re

from absl import flags

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class DurationParser(flags.ArgumentParser):
    """Parses a length of time to seconds."""

    syntactic_help = "a length of time, such as 90s, 20m, 1.5h or 2d"

    def parse(self, argument: str) -> float:
        """Returns the seconds.

        Raises:
          ValueError: the text is no length of time above 0.
        """
        match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smhd])", argument.strip())
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if not 0 < seconds < math.inf:
            raise ValueError("expected a length of time, such as 90s, 20m, 1.5h or 2d")
        return seconds

    def flag_type(self) -> str:
        """Returns the name of the type in --helpxml."""
        return "duration"


def define_duration(name: str, default: str | None, help: str) -> None:
    """Defines a flag whose value is a number of seconds."""
    flags.DEFINE(DurationParser(), name, default, help)
