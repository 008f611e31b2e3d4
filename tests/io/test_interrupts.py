# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a script imports: one line and status 130, no stack trace."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

#: NumPy's core has another name since NumPy 2.
CORE = "numpy._core" if np.__version__ >= "2" else "numpy.core"
ROOT = Path(__file__).parents[2]
#: Scripts that users start.
SCRIPTS = [
    *(path for path in ROOT.glob("*.py")),
    *(path for path in (ROOT / "albert_tf").rglob("*.py")),
    *(path for path in (ROOT / "data_prep").glob("*.py")),
    ROOT / "demo/run.py",
]


def interrupt(command, after):
    """Starts Python and sends SIGINT after the import of a module; returns status and errors."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if line.startswith("import time:") and line.endswith(f" {after}\n"):
            break
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    lines = [line for line in errors.splitlines() if not line.startswith("import time:")]
    return process.returncode, "\n".join(lines)


@pytest.mark.parametrize(
    ("script", "after"),
    [
        (["run_classifier.py"], "absl.flags._defines"),
        (["run_classifier.py"], f"{CORE}.multiarray"),
        (["-m", "data_prep.create_pretraining_data"], "absl.flags._defines"),
        (["-m", "albert_tf.tasks.squad"], f"{CORE}._multiarray_umath"),
    ],
)
def test_an_interrupt_while_a_script_imports_is_one_line(script, after):
    assert interrupt(script, after) == (130, "Stopped by SIGINT.")


@pytest.mark.parametrize(
    "after", [f"{CORE}._multiarray_umath", "numpy.linalg", "tensorflow.dtensor"]
)
def test_an_interrupt_while_tensorflow_is_imported_is_one_line(after, tmp_path):
    (tmp_path / "x").touch()
    command = ["run_pretraining.py", f"--input_file={tmp_path}/x", f"--output_dir={tmp_path}/run"]
    outcome = interrupt([*command, "--albert_config_file=albert_tiny"], after)
    assert outcome == (130, "Stopped by SIGINT.")


def test_interrupts_that_were_ignored_at_the_start_stay_ignored():
    # Shells start background processes like this.
    program = (
        "import os, signal\n"
        "from albert_tf.io.interrupts import end_on_interrupt\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "end_on_interrupt()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print('continued')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "continued\n")


def test_every_script_handles_interrupts_before_its_other_imports():
    scripts = []
    for path in SCRIPTS:
        text = path.read_text("utf-8")
        starts = re.search(r"script\.run(_command)?\b", text)
        # The modules of albert_tf.commands are started by albert_tf/__main__.py alone.
        if not starts or path.name in ("script.py", "task_script.py"):
            continue
        if path.parent.name == "commands":
            continue
        scripts.append(path)
        statements = ast.parse(text).body
        is_docstring, is_future = isinstance(statements[0], ast.Expr), statements[1]
        assert is_docstring and is_future.module == "__future__"
        assert ast.unparse(statements[2]).splitlines() == [
            "if __name__ == '__main__':",
            "    from albert_tf.io.interrupts import end_on_interrupt",
            "    end_on_interrupt()",
        ], path
    assert len(scripts) >= 16
