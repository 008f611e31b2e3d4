# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the library says: messages of the logger "albert_tf", shown like the output of a program.

A Python program silences them with `logging.getLogger("albert_tf").setLevel(logging.WARNING)`, or
replaces the handler.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import textwrap
from typing import TextIO

log = logging.getLogger("albert_tf")


class _Terminal(logging.Handler):
    """Prints messages: warnings on standard error, others on standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a message."""
        warns = record.levelno >= logging.WARNING
        # Looked up each time: notebooks and tests replace the streams.
        show(self.format(record), sys.stderr if warns else sys.stdout)


def show(text: str, file: TextIO) -> None:
    """Prints a text, on a terminal in lines of at most 80 columns; paths are not cut.

    Commands to paste stay as they are.

    Work goes on without a reader, such as a closed terminal, or `tee` that has ended.
    """
    if file.isatty():
        wrap = textwrap.TextWrapper(
            80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        text = "\n".join(
            wrap.fill(x) if len(x) > 80 and not re.match("  albert |    --", x) else x
            for x in text.split("\n")
        )
    try:
        print(text, file=file, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        # What is still buffered, and what native code writes, needs a place as well.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), file.fileno())


log.addHandler(_Terminal())
log.setLevel(logging.INFO)
log.propagate = False  # absl, which scripts use, has a handler for all loggers.
