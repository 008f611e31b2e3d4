# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""No SentencePiece model ends the process: it is used, or refused in a sentence."""

import subprocess
import sys

from tests.fuzz.strange_models import FAULTS


def test_a_model_that_would_end_the_process_is_refused():
    command = [sys.executable, "-m", "tests.fuzz.strange_models"]
    result = subprocess.run(command, capture_output=True, text=True)
    # The last line names the model that ended the process.
    assert result.returncode == 0, result.stdout[-200:] + result.stderr[-2000:]
    opened = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    for name in [*FAULTS, "tokenizer.json"]:
        assert " is damaged: " in opened[name], name
    assert opened["no change"] == "used"
