# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""No SentencePiece model ends the process: it is used, or refused in a sentence."""

import subprocess
import sys

import pytest

from tests.fuzz.strange_models import FAULTS


def outcomes(count: int) -> dict[str, str]:
    """Opens altered models in another process."""
    command = [sys.executable, "-m", "tests.fuzz.strange_models", str(count)]
    result = subprocess.run(command, capture_output=True, text=True)
    # The last line names the model that ended the process.
    assert result.returncode == 0, result.stdout[-200:] + result.stderr[-2000:]
    return dict(line.split(": ", 1) for line in result.stdout.splitlines())


def test_a_model_that_would_end_the_process_is_refused():
    opened = outcomes(60)
    for name in [*FAULTS, "tokenizer.json"]:
        assert " is damaged: " in opened[name], name
    assert "used" in opened.values()


@pytest.mark.slow
def test_no_damage_ends_the_process():
    assert len(outcomes(1000)) == 1000 + len(FAULTS) + 1
