# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup.sh: what it says when something is missing, and when there is nothing to do."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = (
    "bash",
    "dirname",
    "cksum",
    "cut",
    "cat",
    "df",
    "awk",
    "tail",
    "grep",
    "mkdir",
    "rm",
    "tee",
)


@pytest.fixture
def project(tmp_path):
    """A project folder with nothing installed, and a PATH without Python."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/setup.sh", tmp_path / "scripts")
    for name in ("requirements.txt", "requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def set_up(project, **environment):
    return subprocess.run(
        [project / "scripts/setup.sh"],
        env={"PATH": str(project / "bin"), "HOME": str(project), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def put(project, name, script):
    path = project / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
    path.chmod(0o755)


def test_no_python_at_all_is_told_in_one_sentence(project):
    result = set_up(project)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: No Python was found; install Python 3.9-3.11 (or uv) and run make again."
    ]
    assert not (project / ".venv").exists()


def test_too_little_disk_is_told_before_anything_is_made(project):
    put(project, "df", "echo header; echo disk 9999999 9000000 $((500 * 1024)) 90% /")
    result = set_up(project, PYTHON=sys.executable)
    assert result.returncode == 1
    assert "Only 500 MB of disk are free" in result.stderr
    assert not (project / ".venv").exists()


def test_named_interpreter_of_another_version_is_refused(project):
    put(project, "python3.13", "exit 1")
    result = set_up(project, PYTHON="python3.13")
    assert result.returncode == 1
    assert "PYTHON=python3.13 is not a Python 3.9-3.11" in result.stderr


def test_interpreter_without_suitable_version_is_passed_over_for_uv(project):
    put(project, "python3.11", "exit 127")
    put(project, "uv", 'echo "$@" >called; exit 2')
    result = set_up(project)
    assert result.returncode == 1
    assert "uv could not get Python 3.11" in result.stderr
    assert "--python 3.11 .venv" in (project / "called").read_text()


def test_unreachable_package_index_is_named_as_the_cause_and_the_log_kept(project):
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    result = set_up(project, PYTHON=sys.executable, PIP_CONFIG_FILE="/dev/null", **unreachable)
    assert result.returncode == 1
    assert "the network or the package index cannot be reached" in result.stderr
    assert "No matching distribution" in (project / "runs/setup.log").read_text()
    assert not list((project / ".venv").glob(".installed-*"))


def test_broken_environment_is_replaced(project):
    (project / ".venv/bin").mkdir(parents=True)
    put(project, "uv", "exit 2")
    result = set_up(project)
    assert "Removing the broken .venv" in result.stdout
    assert not (project / ".venv").exists()
