# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs with several commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from albert_tf.cli import script


def run_command(commands: Mapping[str, tuple], usage: str) -> None:
    """Runs the command that the first argument names; see `script.run`.

    Args:
      commands: arguments of `script.run` by the command's name.
      usage: printed with --help, and before the error about an unknown command.
    """
    if sys.argv[1:2] and sys.argv[1] in commands:
        script.run(*commands[sys.argv.pop(1)])
    print(usage.strip())
    if sys.argv[1:2] not in (["--help"], ["-h"]):
        *others, last = commands
        names = f"{', '.join(others)} or {last}" if others else last
        print(f"error: the first argument must be {names}.", file=sys.stderr)
        sys.exit(1)
