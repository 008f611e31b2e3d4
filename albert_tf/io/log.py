# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the library says: messages of the logger "albert_tf", shown like the output of a program.

A Python program silences them with `logging.getLogger("albert_tf").setLevel(logging.WARNING)`, or
replaces the handler.
"""

from __future__ import annotations

import logging
import sys

log = logging.getLogger("albert_tf")


class _Terminal(logging.Handler):
    """Prints messages: warnings on standard error, others on standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a message."""
        warns = record.levelno >= logging.WARNING
        # Looked up each time: notebooks and tests replace the streams.
        print(self.format(record), file=sys.stderr if warns else sys.stdout, flush=warns)


log.addHandler(_Terminal())
log.setLevel(logging.INFO)
log.propagate = False  # absl, which scripts use, has a handler for all loggers.
