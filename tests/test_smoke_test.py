# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""scripts/smoke_test.sh: the Python that it chooses, and its messages."""

import re

import pytest

from tests.support.stub_pythons import Project

pytestmark = pytest.mark.tooling


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    for name, text in {"test_a": "mark.smoke", "a/test_b": "mark.smoke", "test_c": "mark"}.items():
        project.put(f"tests/{name}.py", text)
    return project


@pytest.fixture
def older(project):
    project.put_python(".venv/bin/python", 11)
    return project


@pytest.fixture
def newer(project):
    project.put_python(".venv/bin/python", 12)
    return project


def smoke(project):
    return project.run("smoke_test.sh")


def test_with_older_versions_installed_the_newest_python_is_chosen(older):
    older.put_pythons(python3=11, python3_11=11, python3_12=12, python3_13=13)
    done = smoke(older)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"Smoke test of the other versions: passed on python3\.13 in \d+ s\.\n", done.stdout
    )
    assert (older / ".venv-python3.13/bin/python").exists()
    assert "-r requirements-dev.txt" in (older / "called-pip").read_text()
    assert (older / "called-pytest").read_text() == (
        "-m pytest -q -m smoke tests/a/test_b.py tests/test_a.py\n"
    )


def test_with_newer_versions_installed_an_older_python_is_chosen(newer):
    newer.put_pythons(python3=13, python3_13=13, python3_10=10, python3_9=9)
    assert "passed on python3.10 in" in smoke(newer).stdout


def test_nothing_is_installed_twice(older):
    older.put_pythons(python3_12=12)
    smoke(older)
    (older / "called-pip").unlink()
    assert "passed on python3.12" in smoke(older).stdout
    assert not (older / "called-pip").exists()


def test_a_broken_interpreter_is_skipped(older):
    older.put("bin/python3.13", "exit 127")
    older.put_pythons(python3_12=12)
    assert "passed on python3.12" in smoke(older).stdout


def test_an_interpreter_of_pyenv_is_found(older):
    older.put("bin/python3.13", "exit 127")  # Its shim.
    older.put_python(".pyenv/versions/3.13.0/bin/python3.13", 13)
    assert "passed on python3.13" in smoke(older).stdout
    assert (older / ".venv-python3.13/bin/python").exists()


def test_a_missing_interpreter_is_reported_without_failure(older):
    older.put_pythons(python3=11, python3_11=11)
    done = smoke(older)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "Smoke test of the other versions: not run, as there is no python3.13 or python3.12.\n"
    )
    assert not (older / "called-pip").exists()


def test_a_missing_older_interpreter_is_reported_too(newer):
    newer.put_pythons(python3=13)
    assert "there is no python3.11 or python3.10 or python3.9.\n" in smoke(newer).stdout


def test_an_unreachable_package_index_is_reported_without_failure(older):
    older.put_pythons(python3_13=13)
    older.put("pip", "echo 'ERROR: no version of it (from versions: none)'; exit 1")
    done = smoke(older)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "Smoke test of the other versions: not run, as the package index cannot be reached.\n"
    )


def test_a_failed_installation_is_a_failure(older):
    older.put_pythons(python3_13=13)
    older.put("pip", "echo 'ERROR: these requirements contradict each other'; exit 1")
    done = smoke(older)
    assert done.returncode == 1
    assert "error: The requirements could not be installed (see runs/setup.log)" in done.stderr


def test_failing_tests_are_a_failure(older):
    older.put_pythons(python3_13=13)
    older.put("pytest", "echo one failed; exit 1")
    done = smoke(older)
    assert (done.returncode, done.stdout) == (1, "one failed\n")
    assert done.stderr == (
        "Smoke test of the other versions: failed on python3.13, or took longer than 180 s.\n"
    )
