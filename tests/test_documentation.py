# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""README and docs/flags.md say what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def documented_flags():
    """Script path -> names of its flags, from docs/flags.md."""
    sections = re.split(r"^## `(.*)`$", (ROOT / "docs/flags.md").read_text("utf-8"), flags=re.M)
    pairs = zip(sections[1::2], sections[2::2])
    return {script: set(re.findall(r"^\| `--(\w+)`", text, flags=re.M)) for script, text in pairs}


def readme_commands():
    """Script path and flag names of every command in README."""
    text = "\n".join(re.findall(r"```(?:bash|sh)\n(.*?)```", README, flags=re.S))
    lines = text.replace("\\\n", " ").splitlines()
    return [
        (line.split()[1], re.findall(r" --(\w+)", line))
        for line in lines
        if line.startswith("python ") and line.split()[1].endswith(".py")
    ]


def test_flag_reference_is_what_the_scripts_say(tmp_path):
    script = "import make_flag_reference as m; print(m.flag_reference(), end='')"
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{ROOT}/scripts:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == (ROOT / "docs/flags.md").read_text("utf-8"), "run `make docs`"


def test_flag_reference_covers_every_console_entry_point():
    entry_points = re.findall(
        r'^albert-[\w-]+ = "([\w.]+):main"', (ROOT / "pyproject.toml").read_text("utf-8"), re.M
    )
    assert {f"{name.replace('.', '/')}.py" for name in entry_points} == set(documented_flags())


def test_readme_shows_commands():
    assert len(readme_commands()) >= 6


@pytest.mark.parametrize(("script", "names"), readme_commands())
def test_flags_in_readme_exist(script, names):
    known = documented_flags()[script]
    assert [
        name for name in names if name not in known and name.removeprefix("no") not in known
    ] == []


def test_links_in_readme_exist():
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
