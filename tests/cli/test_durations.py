# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.cli.durations: lengths of time on the command line."""

from __future__ import annotations

import pytest

from albert_tf.cli.durations import DurationParser


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("2d", 172_800), (".5m", 30)]
)
def test_lengths_of_time_are_parsed_to_seconds(text, seconds):
    assert DurationParser().parse(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "-5m", "0s", "1h30m", "20 min", "infs", "1e3s"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="expected a length of time, such as 90s, 20m"):
        DurationParser().parse(text)
