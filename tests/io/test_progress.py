# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress: bars of text, and plain lines where nothing can be redrawn."""

from __future__ import annotations

import contextlib
import io

import pytest

from albert_tf.io import progress

#: A training of 20 steps with an evaluation after step 10.
WORK = """
from albert_tf.io.progress import Progress
with Progress("train", 20, "steps") as outer:
    for step in range(20):
        outer.update(1, f"loss {step}")
        if step == 10:
            outer.note("A note.")
            with Progress("eval", 3, "batches") as inner:
                inner.update(3)
"""


class NotebookStream(io.StringIO):
    """Standard error as ipykernel replaces it."""


NotebookStream.__module__ = "ipykernel.iostream"


def shown(stream):
    """Does the work and returns what it writes to standard error, at once."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(stream):
        patch.setattr(progress, "_BAR_DELAY", 0)
        exec(WORK, {})
    return stream.getvalue()


def test_a_notebook_shows_one_bar_of_text():
    text = shown(NotebookStream())
    assert text.endswith("\rtrain 100% 20/20 00:00 left  loss 19\n")
    # Below the first bar there would be a second one only if the cursor could move up.
    assert "eval" not in text and "\x1b" not in text
    assert "\nA note.\n" in text.replace("\r", "\n")


def test_elsewhere_there_are_lines_only():
    assert shown(io.StringIO()) == "A note.\n"
