# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: its public names, and what its imports import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import albert_tf

ROOT = Path(__file__).parent.parent


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_and_small_programs_does_not_import_tensorflow():
    small = ("ensemble", "glue.submission")
    names = ", ".join(["albert_tf", *(f"albert_tf.tasks.{name}" for name in small)])
    assert python(f"import {names}, sys; print('tensorflow' in sys.modules)") == "False"


@pytest.mark.smoke
def test_a_program_shows_nothing_of_tensorflows_log(monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    code = [sys.executable, "-c", "import albert_tf; albert_tf.TextClassifier"]
    done = subprocess.run(code, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_export_check_does_not_change_sys_path():
    code = "import sys; paths = [*sys.path]; import albert_tf.export.probe_process as probe; "
    assert python(code + "print(paths == sys.path)") == "True"


@pytest.mark.smoke
def test_all_public_names_exist():
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
    assert {"AlbertEncoder", "AlbertPretrainer", "Estimator", "EvalSpec"} <= set(dir(albert_tf))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Albret'"):
        _ = albert_tf.Albret


def test_all_scripts_can_be_imported_together_without_defining_flags():
    scripts = [p.stem for p in ROOT.glob("run_*.py")]
    scripts += [f"data_prep.{p.stem}" for p in (ROOT / "data_prep").glob("*.py")]
    assert len(scripts) == 10
    code = (
        "from absl import app, flags; known = set(flags.FLAGS)\n"
        f"import {', '.join(scripts)}\n"
        "print(set(flags.FLAGS) - known)"
    )
    assert python(code) == "set()"
