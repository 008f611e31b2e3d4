# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup.sh: the Python and the versions that it chooses, and its errors."""

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
    """Returns what pip would install for a Python: versions by name."""
    lines = (ROOT / "requirements.txt").read_text() + (ROOT / "requirements-dev.txt").read_text()
    lines = [line for line in lines.splitlines() if line and line[0] not in "#-"]
    parsed = [Requirement(line) for line in lines]
    environment = {"python_version": python_version}
    chosen = [r for r in parsed if not r.marker or r.marker.evaluate(environment)]
    return {r.name: str(r.specifier) for r in chosen}


def test_a_missing_python_is_reported_in_one_sentence(project):
    result = set_up(project)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: No Python was found; install Python 3.9-3.13 (or uv) and run make again."
    ]
    assert not (project / ".venv").exists()


@pytest.mark.parametrize("minor", [8, 14])
def test_a_given_interpreter_of_another_version_is_refused(project, minor):
    project.put_pythons(mine=minor, python3=11)
    result = set_up(project, PYTHON="mine")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: PYTHON=mine is not a Python 3.9-3.13 with venv; name another."
    ]
    assert not (project / ".venv").exists()


@pytest.mark.parametrize(
    ("pythons", "environment", "minor"),
    [
        ({"mine": 9, "python3": 12}, {"PYTHON": "mine"}, 9),
        *(
            ({"python3": other, "python": other, f"python3_{minor}": minor}, {}, minor)
            for other in (8, 14)
            for minor in (13, 12, 10, 9)
        ),
        ({"python3": 14, "python3_9": 9, "python3_11": 11, "python": 12}, {}, 11),
        ({"python": 10}, {}, 10),
    ],
)
def test_the_given_interpreter_python3_the_newest_and_python_are_chosen_in_this_order(
    project, pythons, environment, minor
):
    project.put_pythons(**pythons)
    assert f"Making .venv with Python 3.{minor}.0" in set_up(project, **environment).stdout


def test_uv_is_called_only_without_a_suitable_python(project):
    project.put_pythons(python3=14, python3_11=8)
    project.put("bin/uv", 'echo "$@" >called; exit 2')
    result = set_up(project)
    assert result.returncode == 1
    assert "uv could not get Python 3.13" in result.stderr
    assert "--python 3.13 .venv" in (project / "called").read_text()


def test_the_two_sets_of_versions_differ_from_python_3_12_on():
    older, newer = requirements_for("3.11"), requirements_for("3.12")
    assert newer == requirements_for("3.13")
    assert set(older) - set(requirements_for("3.9")) == {"import-linter", "tf2onnx"}
    assert set(older) - set(newer) == {"tensorflow-addons"}
    assert set(newer) - set(older) == {"ai-edge-litert"}
    assert older["tensorflow"] == "==2.15.1" and newer["tensorflow"].startswith("==2.21")
    assert all(version.startswith("==") for version in [*older.values(), *newer.values()])


@pytest.mark.parametrize("name", ["docs", ".venv/../docs", "--curent"])
def test_a_folder_that_is_no_environment_is_refused_and_kept(project, name):
    project.put("docs/index.md", "kept")
    project.put_pythons(python3=12)
    result = set_up(project, name)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"error: {name} cannot be the environment's folder; give a name that begins with .venv."
    ]
    assert (project / "docs/index.md").exists()


def test_a_broken_environment_is_removed(project):
    (project / ".venv/bin").mkdir(parents=True)
    project.put("bin/uv", "exit 2")
    result = set_up(project)
    assert "Removing the broken .venv" in result.stdout
    assert not (project / ".venv").exists()
