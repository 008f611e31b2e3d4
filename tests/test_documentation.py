# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""README and the pages in docs say what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def documented_flags():
    """Script path -> names of its flags, from docs/flags.md."""
    sections = re.split(r"^## `(.*)`$", (ROOT / "docs/flags.md").read_text("utf-8"), flags=re.M)
    pairs = zip(sections[1::2], sections[2::2])
    return {script: set(re.findall(r"^\| `--(\w+)`", text, flags=re.M)) for script, text in pairs}


def shell(page):
    """All that a page gives to type into a shell."""
    return "\n".join(re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text("utf-8"), flags=re.S))


def commands(page):
    """Script path and flag names of every command on a page."""
    lines = shell(page).replace("\\\n", " ").splitlines()
    found = [re.search(r"\bpython (\S+\.py)(.*)", line) for line in lines]
    return [(match[1], re.findall(r" --(\w+)", match[2])) for match in found if match]


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


@pytest.mark.parametrize(("page", "least"), [("README.md", 6), ("docs/cloud_tpu.md", 7)])
def test_pages_show_commands(page, least):
    assert len(commands(ROOT / page)) >= least


@pytest.mark.parametrize(
    ("script", "names"), [command for page in PAGES for command in commands(page)]
)
def test_flags_in_commands_exist(script, names):
    known = documented_flags()[script]
    assert [
        name for name in names if name not in known and name.removeprefix("no") not in known
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_words_a_shell_understands(page):
    done = subprocess.run(["bash", "-n"], input=shell(page), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_exist():
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text("utf-8"))
    ]
    assert len(links) > 10
    assert [target for page, target in links if not (page.parent / target).exists()] == []
