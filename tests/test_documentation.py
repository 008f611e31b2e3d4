# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""README and the pages in docs agree with the code."""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf import __main__ as albert
from tests.support.pages import code_blocks

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.ipynb")),
    ROOT / "benchmarks/README.md",
]


def prose(page):
    """Returns a page as Markdown, without the code cells of notebooks."""
    text = page.read_text("utf-8")
    if page.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def documented_flags():
    """Returns the defaults in docs/flags.md, as written there: {script path: {flag: default}}.

    The key of a command that uses a model is "albert <name> MODEL".
    """
    sections = re.split(r"^## `(.*)`$", (ROOT / "docs/flags.md").read_text("utf-8"), flags=re.M)
    row = re.compile(r"^\| `--(\w+)` \| (.*?) \|", flags=re.M)
    found = collections.defaultdict(dict)
    for titles, text in zip(sections[1::2], sections[2::2]):
        for script in titles.split("`, `"):
            found[script].update(row.findall(text))
    return found


def commands(page):
    """Returns script path, or command and MODEL, and flag names of each command on a page."""
    blocks = code_blocks(prose(page))
    shell = "\n".join(code for language, code in blocks if language in ("bash", "sh"))
    lines = shell.replace("\\\n", " ").splitlines()
    matches = [re.search(r"\bpython (\S+\.py)(.*)", line) for line in lines]
    found = [(match[1], match[2]) for match in matches if match]
    for line in lines:
        if match := re.search(r"(?:^|\| )albert ([a-z][a-z-]*) (.*)", line):
            modules = albert.COMMANDS[match[1]][1:]
            uses_model = "commands" in modules[0] and not match[2].startswith("--")
            script = f"{modules[-1].removeprefix('scripts.').replace('.', '/')}.py"
            if uses_model or not (ROOT / script).exists():
                script = f"albert {match[1]}{' MODEL' * uses_model}"
            found.append((script, match[2]))
    names = r" --(?!help\b)(\w+)"
    return [(script, re.findall(names, f" {given}")) for script, given in found]


def test_the_flag_reference_is_up_to_date(tmp_path):
    script = "import make_flag_reference as m; print(m.flag_reference(), end='')"
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{ROOT}/scripts:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == (ROOT / "docs/flags.md").read_text("utf-8"), "run `make docs`"


@pytest.mark.parametrize(
    ("script", "names"), [command for page in PAGES for command in commands(page)]
)
def test_flags_in_commands_exist(script, names):
    defaults = documented_flags()[script]
    assert [n for n in names if n not in defaults and n.removeprefix("no") not in defaults] == []


def test_links_exist():
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", prose(page))
    ]
    assert len(links) > 10
    assert [target for page, target in links if not (page.parent / target).exists()] == []


def migration_rows():
    """Yields (our scripts, our flag, our default) for each flag in docs/migration.md."""
    text = (ROOT / "docs/migration.md").read_text("utf-8")
    runners = ["run_pretraining.py", "run_classifier.py", "run_squad.py", "run_race.py"]
    for section in re.split(r"^## ", text, flags=re.M):
        here = re.search(r"^In albert_tf: `(\S+)`", section, flags=re.M)
        for row in re.findall(r"^\|(.*)\|$", section, flags=re.M):
            cells = [cell.strip() for cell in row.split(" | ")]
            if len(cells) != 5 or not cells[0].startswith("`--"):
                continue
            for theirs in re.findall(r"--(\w+)", cells[0]):
                for ours in [theirs] if cells[2] == "same" else re.findall(r"--(\w+)", cells[2]):
                    yield [here[1]] if here else runners, ours, cells[3]


def test_flags_on_the_migration_page_exist_with_these_defaults():
    defaults = documented_flags()
    rows = list(migration_rows())
    assert len(rows) > 60
    for scripts, ours, stated in rows:
        for script in scripts:
            default = defaults[script][ours].strip("`*")
            literal = re.match(r"`(.*?)`", stated)
            if stated == "required" or (literal and default):
                assert (literal[1] if literal else stated) == default, (script, ours)
            else:
                assert not default, (script, ours)
