# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that are true, false or auto."""

from __future__ import annotations

from absl import flags

AUTO = "auto"


class AutoParser(flags.BooleanParser):
    """Parses AUTO, or a bool as absl's boolean flags do."""

    def parse(self, argument: str | int) -> bool | str:
        """Returns AUTO or a bool; raises ValueError for anything else."""
        if argument == AUTO:
            return AUTO
        try:
            return super().parse(argument)
        except ValueError:
            raise ValueError("give true, false or auto") from None

    def flag_type(self) -> str:
        """Returns the name of the type for --helpxml."""
        return "bool or auto"


def define_auto(name: str, help: str) -> None:
    """Defines a flag, AUTO by default, that is given as --name, --noname or --name=auto."""
    serializer = flags.ArgumentSerializer()
    flag = flags.Flag(AutoParser(), serializer, name, AUTO, help, boolean=True)
    flags.DEFINE_flag(flag)
