# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""README and the pages in docs agree with the code."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from albert_tf import __main__ as albert
from albert_tf.version import __version__
from tests.support.pages import code_blocks

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.ipynb")),
    ROOT / "benchmarks/README.md",
]
#: Sources of the site.
SITE = ("mkdocs.yml", "docs", "scripts", "benchmarks", "CONTRIBUTING.md", "CHANGELOG.md")


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
    pairs = zip(sections[1::2], sections[2::2])
    row = re.compile(r"^\| `--(\w+)` \| (.*?) \|", flags=re.M)
    return {script: dict(row.findall(text)) for script, text in pairs}


def shell(page):
    """Returns all shell code of a page."""
    blocks = code_blocks(prose(page))
    return "\n".join(block.text for block in blocks if block.language in ("bash", "sh"))


def commands(page):
    """Returns script path, or command and MODEL, and flag names of each command on a page."""
    lines = shell(page).replace("\\\n", " ").splitlines()
    matches = [re.search(r"\bpython (\S+\.py)(.*)", line) for line in lines]
    found = [(match[1], match[2]) for match in matches if match]
    for line in lines:
        if match := re.search(r"(?:^|\| )albert ([a-z][a-z-]*) (.*)", line):
            modules = albert.modules(match[1])
            uses_model = albert.COMMANDS[match[1]].takes_model and not match[2].startswith("--")
            script = f"{modules[-1].replace('.', '/')}.py"
            found.append((f"albert {match[1]} MODEL" if uses_model else script, match[2]))
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


def test_the_flag_reference_covers_all_commands():
    commands = albert.COMMANDS.items()
    scripts = {f"{c.script.replace('.', '/')}.py" for _, c in commands if c.script}
    use = {f"albert {name} MODEL" for name, c in commands if c.takes_model}
    assert scripts | use == set(documented_flags())


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("README.md", 5),
        ("docs/pretraining.md", 14),
        ("docs/not_run.md", 4),
        ("docs/command_line.md", 10),
        ("docs/notebooks/from_text_to_predictions.ipynb", 8),
    ],
)
def test_pages_show_commands(page, least):
    assert len(commands(ROOT / page)) >= least


@pytest.mark.parametrize(
    ("script", "names"), [command for page in PAGES for command in commands(page)]
)
def test_flags_in_commands_exist(script, names):
    defaults = documented_flags()[script]
    assert [n for n in names if n not in defaults and n.removeprefix("no") not in defaults] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_valid_shell_code(page):
    done = subprocess.run(["bash", "-n"], input=shell(page), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
    assert len(rows) > 90
    for scripts, ours, stated in rows:
        for script in scripts:
            default = defaults[script][ours].strip("`*")
            literal = re.match(r"`(.*?)`", stated)
            if stated == "required" or (literal and default):
                assert (literal[1] if literal else stated) == default, (script, ours)
            else:
                assert not default, (script, ours)


def test_flags_in_the_prose_on_troubleshooting_and_migration_exist():
    known = {flag for defaults in documented_flags().values() for flag in defaults}
    for name in ("migration", "troubleshooting"):
        text = (ROOT / f"docs/{name}.md").read_text("utf-8")
        # The first column of a migration table holds other programs' flags.
        text = re.sub(r"^\| `--.*? \|", "", text, flags=re.M)
        named = set(re.findall(r"--([a-z]\w+)", text))
        assert len(named) > 20
        assert {f for f in named if f not in known and f.removeprefix("no") not in known} == set()


def build_site(project, folder):
    # Not --quiet, which suppresses the warnings that --strict counts.
    config = project / "mkdocs.yml"
    command = ["mkdocs", "build", "--strict", "--config-file", config, "--site-dir"]
    return subprocess.run(
        [sys.executable, "-m", *command, folder], capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build_site(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.tooling
def test_the_site_shows_examples_of_docstrings_as_code_and_keeps_flags_whole(site):
    api = (site / "api.html").read_text("utf-8")
    count = len(re.findall(r"<strong>Example:</strong></p>\s*<div class=\"language-python", api))
    assert count > 5
    assert "<summary>Example" not in api
    guide = (site / "guides/fine_tune.html").read_text("utf-8")
    assert '<code><span class="flag">--text_pair_column</span></code>' in guide


@pytest.mark.tooling
def test_the_site_has_all_pages_and_loads_nothing_from_other_hosts(site):
    pages = {page.relative_to(ROOT / "docs") for page in PAGES if ROOT / "docs" in page.parents}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert {page.with_suffix(".html") for page in pages} <= built
    # Not README.md, which MkDocs takes for the first page of a folder.
    assert "assets/data_flow.svg" in (site / "index.html").read_text("utf-8")
    loaded = [
        target
        for page in site.rglob("*.html")
        for target in re.findall(
            r"""<(?:link|script|img|iframe)\b[^>]*?(?:href|src)=["'](.*?)["']""",
            page.read_text("utf-8"),
        )
    ]
    assert len(loaded) > 10
    assert [target for target in loaded if "//" in target] == []


@pytest.mark.tooling
@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("nowhere.md", "'nowhere.md'"),
        ("../benchmarks/nowhere.md", "'../benchmarks/nowhere.md'"),
        ("flags.md#nowhere", "does not contain an anchor '#nowhere'"),
    ],
)
def test_the_site_is_not_built_with_a_broken_link(tmp_path, link, complaint):
    project = tmp_path / "project"
    project.mkdir()
    for name in SITE:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, project / name)
    with (project / "docs/index.md").open("a") as page:
        page.write(f"\n[broken]({link})\n")
    done = build_site(project, tmp_path / "site")
    assert done.returncode == 1
    assert complaint in done.stdout + done.stderr


def test_citation_and_changelog_state_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## .*\b{re.escape(__version__)}\b", changelog, flags=re.M)


def test_make_lists_its_targets_within_80_columns():
    # Without the option, make called by make (as in `make test`) prints its folder.
    command = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[0]
    assert [line.split()[1] for line in shown.splitlines()] == targets.split()
    assert max(map(len, shown.splitlines())) <= 80
