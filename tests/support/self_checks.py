# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The self-check of exports without the start of a fresh process, which takes seconds."""

from __future__ import annotations

import contextlib
import subprocess
import types
from collections.abc import Iterator

import pytest

from albert_tf.export import probe_process, self_check


@contextlib.contextmanager
def checked_in_this_process() -> Iterator[None]:
    """Checks exports in this process; for kinds that another test checks in a fresh process."""

    def call(command, **_):
        _, script, *arguments = command
        assert script == probe_process.__file__
        probe_process.main(*arguments)
        return subprocess.CompletedProcess(command, 0)

    with pytest.MonkeyPatch.context() as patch:
        # Replaced in self_check only: other modules, such as numpy.testing, start processes too.
        patch.setattr(self_check, "subprocess", types.SimpleNamespace(run=call))
        yield
