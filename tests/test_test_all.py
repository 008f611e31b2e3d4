# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""scripts/test_all.py: counts and time limits of the parts, in the summary."""

import importlib.util
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.tooling
ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("test_all", ROOT / "scripts/test_all.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "OUTPUT", tmp_path)
    return module


def write_tests(path, text):
    path.write_text("import pytest, time\n\n" + textwrap.dedent(text))
    return str(path)


def test_the_tests_of_a_part_are_counted(script, tmp_path):
    path = write_tests(
        tmp_path / "test_some.py",
        """
        def test_good(): pass
        def test_bad(): assert False
        def test_skipped(): pytest.skip("not here")
        """,
    )
    part = script.Part(1, "not slow", (path,))
    result = script.run("some", part)
    assert (result.passed, result.failed, result.skipped, result.stopped) == (1, 1, 1, False)
    table = script.table({"some": result}, {"some": part})
    assert table.splitlines()[1].split()[:4] == ["some", "1", "1", "1"]


def test_a_part_that_takes_too_long_is_stopped_and_has_no_results(script, tmp_path):
    path = write_tests(tmp_path / "test_long.py", "def test_long(): time.sleep(600)\n")
    part = script.Part(0.1, "not slow", (path,))
    result = script.run("long", part)
    assert result.stopped and not result.passed and result.seconds < 60
    assert script.table({"long": result}, {"long": part}).endswith("out of time")


def test_each_slow_test_belongs_to_one_part(script):
    parts = [*script.PARTS.values(), script.other_slow_tests()]
    paths = [ROOT / path for part in parts if part.marker == "slow" for path in part.paths]
    assert len(paths) == len(set(paths))
    for file in (ROOT / "tests").rglob("test_*.py"):
        assert sum(path in (file, *file.parents) for path in paths) == 1, file
