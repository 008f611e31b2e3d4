# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls functions in a forked process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from albert_tf.errors import AlbertError


def assert_refused_in_a_fork(*functions: Callable[[], object]) -> None:
    """Asserts that each function, called in a fork of this process, says "use spawn"."""
    child = os.fork()
    if not child:
        refused = 0
        try:
            for function in functions:
                try:
                    function()
                except AlbertError as error:
                    refused += "Use spawn" in str(error)
        finally:
            os._exit(refused)
    ended, end = 0, time.monotonic() + 30
    while not ended and time.monotonic() < end:
        time.sleep(0.05)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError("The forked process hangs.")
    assert os.waitstatus_to_exitcode(status) == len(functions)
