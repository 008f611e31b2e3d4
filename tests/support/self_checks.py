# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The self-check of exports without the seconds that a fresh process takes."""

from __future__ import annotations

import contextlib
import subprocess
import types
from collections.abc import Iterator

import pytest

from albert_tf.export import probe_process, self_check


@contextlib.contextmanager
def checked_in_this_process() -> Iterator[None]:
    """Checks exports here; for kinds of export that another test checks in a fresh process."""

    def call(command, **_):
        _, script, saved_model, folder = command
        assert script == probe_process.__file__
        probe_process.main(saved_model, folder)
        return subprocess.CompletedProcess(command, 0)

    with pytest.MonkeyPatch.context() as patch:
        # For the self-check alone: others start processes, too; numpy.testing when it is imported.
        patch.setattr(self_check, "subprocess", types.SimpleNamespace(run=call))
        yield
