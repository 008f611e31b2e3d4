# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup.sh: which Python and which versions it takes, and what it says without them."""

import shutil
import sys

import pytest
from packaging.requirements import Requirement

from tests.support.stub_pythons import ROOT, Project

pytestmark = pytest.mark.tooling


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def set_up(project, *arguments, **environment):
    return project.run("setup.sh", *arguments, **environment)


def requirements_for(python_version):
    """What pip would install on a Python, as {name: exact version}."""
    lines = (ROOT / "requirements.txt").read_text() + (ROOT / "requirements-dev.txt").read_text()
    lines = [line for line in lines.splitlines() if line and line[0] not in "#-"]
    parsed = [Requirement(line) for line in lines]
    environment = {"python_version": python_version}
    chosen = [r for r in parsed if not r.marker or r.marker.evaluate(environment)]
    return {r.name: str(r.specifier) for r in chosen}


def test_no_python_at_all_is_told_in_one_sentence(project):
    result = set_up(project)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: No Python was found; install Python 3.9-3.13 (or uv) and run make again."
    ]
    assert not (project / ".venv").exists()


def test_too_little_disk_is_told_before_anything_is_made(project):
    project.put("bin/df", "echo header; echo disk 9999999 9000000 $((500 * 1024)) 90% /")
    result = set_up(project, PYTHON=sys.executable)
    assert result.returncode == 1
    assert "Only 500 MB of disk are free" in result.stderr
    assert not (project / ".venv").exists()


@pytest.mark.parametrize("minor", [8, 14])
def test_named_interpreter_of_another_version_is_refused(project, minor):
    project.put_pythons(mine=minor, python3=11)
    result = set_up(project, PYTHON="mine")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: PYTHON=mine is not a Python 3.9-3.13 with venv; name another."
    ]
    assert not (project / ".venv").exists()


def test_named_interpreter_is_taken_before_all_others(project):
    project.put_pythons(mine=9, python3=12)
    assert "Making .venv with Python 3.9.0" in set_up(project, PYTHON="mine").stdout


def test_python3_is_taken_whichever_others_there_are(project):
    project.put_pythons(python3=12, python3_11=11, python3_13=13)
    result = set_up(project)
    assert result.returncode == 0, result.stderr
    assert "Making .venv with Python 3.12.0" in result.stdout
    assert "-r requirements-dev.txt" in (project / "called-pip").read_text()
    assert "Set-up finished." in result.stdout


@pytest.mark.parametrize("minor", [8, 14])
@pytest.mark.parametrize("other", ["python3_13", "python3_12", "python3_10", "python3_9"])
def test_python3_of_another_version_is_passed_over(project, minor, other):
    fit = int(other.rsplit("_")[1])
    project.put_pythons(python3=minor, python=minor, **{other: fit})
    assert f"Making .venv with Python 3.{fit}.0" in set_up(project).stdout


def test_newest_suitable_python_is_taken_after_python3(project):
    project.put_pythons(python3=14, python3_9=9, python3_11=11, python=12)
    assert "Making .venv with Python 3.11.0" in set_up(project).stdout


def test_python_is_taken_where_nothing_else_is(project):
    project.put_pythons(python=10)
    assert "Making .venv with Python 3.10.0" in set_up(project).stdout


def test_uv_is_called_only_where_no_python_is_suitable(project):
    project.put_pythons(python3=14, python3_11=8)
    project.put("bin/uv", 'echo "$@" >called; exit 2')
    result = set_up(project)
    assert result.returncode == 1
    assert "uv could not get Python 3.13" in result.stderr
    assert "--python 3.13 .venv" in (project / "called").read_text()


def test_current_versions_go_into_their_own_folder_and_not_onto_python_3_9(project):
    project.put_pythons(python3=9, python3_10=10)
    result = set_up(project, "--current")
    assert result.returncode == 0, result.stderr
    assert "Making .venv-current with Python 3.10.0" in result.stdout
    assert not (project / ".venv").exists()
    refused = set_up(project, "--current", PYTHON="python3", HOME="/elsewhere")
    assert refused.returncode == 0  # It is there already.
    shutil.rmtree(project / ".venv-current")
    refused = set_up(project, "--current", PYTHON="python3")
    assert refused.stderr.splitlines() == [
        "error: PYTHON=python3 is not a Python 3.10-3.13 with venv; name another."
    ]


def test_current_versions_are_those_of_python_3_12(project):
    project.put_pythons(python3=11)
    assert set_up(project, "--current").returncode == 0
    assert "-r .venv-current/requirements.txt" in (project / "called-pip").read_text()
    lines = (project / ".venv-current/requirements.txt").read_text().splitlines()
    made = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert {r.name: str(r.specifier) for r in made} == requirements_for("3.12")
    assert all(r.marker is None for r in made)
    assert len(made) == len(requirements_for("3.12"))


def test_two_sets_of_versions_are_told_apart_by_python_3_12():
    older, newer = requirements_for("3.11"), requirements_for("3.12")
    assert newer == requirements_for("3.13")
    assert set(older) - set(requirements_for("3.9")) == {"import-linter"}
    assert set(older) - set(newer) == {"tensorflow-addons"}
    assert set(newer) - set(older) == {"ai-edge-litert"}
    assert older["tensorflow"] == "==2.15.1" and newer["tensorflow"].startswith("==2.21")
    assert all(version.startswith("==") for version in [*older.values(), *newer.values()])


@pytest.mark.parametrize("name", ["docs", ".venv/../docs", "--curent"])
def test_folder_that_cannot_be_an_environment_is_refused_and_kept(project, name):
    project.put("docs/index.md", "kept")
    project.put_pythons(python3=12)
    result = set_up(project, name)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"error: {name} cannot be the environment's folder; give a name that begins with .venv."
    ]
    assert (project / "docs/index.md").exists()


def test_environment_goes_into_the_folder_that_is_named(project):
    project.put_pythons(python3=12)
    result = set_up(project, ".venv-other")
    assert result.returncode == 0, result.stderr
    assert (project / ".venv-other/bin/python").exists() and not (project / ".venv").exists()
    assert "-r requirements-dev.txt" in (project / "called-pip").read_text()


def test_unreachable_package_index_is_named_as_the_cause_and_the_log_kept(project):
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    result = set_up(project, PYTHON=sys.executable, PIP_CONFIG_FILE="/dev/null", **unreachable)
    assert result.returncode == 1
    assert "the network or the package index cannot be reached" in result.stderr
    assert "No matching distribution" in (project / "runs/setup.log").read_text()
    assert not list((project / ".venv").glob(".installed-*"))


def test_broken_environment_is_replaced(project):
    (project / ".venv/bin").mkdir(parents=True)
    project.put("bin/uv", "exit 2")
    result = set_up(project)
    assert "Removing the broken .venv" in result.stdout
    assert not (project / ".venv").exists()
