# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a page as a reader in a checkout would, in their order."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
#: Names in a checkout that commands and programs on pages use.
_CHECKOUT = ("albert_tf", "data_prep", "demo", "scripts", "tests")
_SHELL, _PYTHON, _TEXT = ("bash", "sh"), "python", "text"
#: Before a command in a session.
_PROMPT = "$ "
#: A figure, or a value that a model computes, in what a program prints.
_FIGURE = re.compile(
    r"-?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?(?:k(?= tok/s))?|\bTrue\b|\bFalse\b|\bb'[^']*'"
)
_LEFT_OUT = re.compile(r"\[…\]|…")


class Block(NamedTuple):
    """A code block: its language ("bash", "python", …) and its text."""

    language: str
    text: str


class Command(NamedTuple):
    """Commands for the shell, and what the page shows that they print; "" without a session."""

    text: str
    shown: str


def code_blocks(text: str) -> list[Block]:
    """Returns the fenced code blocks of a page."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.M | re.S)
    return [Block(*groups) for groups in found]


def replaced(text: str, replacements: Mapping[str, str]) -> str:
    """Replaces parts of a page, all of which must occur."""
    for old, new in replacements.items():
        assert old in text, f"{old!r} is not on the page"
        text = text.replace(old, new)
    return text


def shell_commands(text: str) -> list[Command]:
    """Returns the commands of a page in their order: shell blocks, and those after "$ " in text."""
    commands = []
    for language, code in code_blocks(text):
        if language in _SHELL:
            commands.append(Command(code, ""))
        elif language == _TEXT:
            commands += _session(code)
    return commands


def _session(text: str) -> Iterator[Command]:
    """Yields the commands of a session with what follows each; nothing if there is no command."""
    for part in f"\n{text}".split(f"\n{_PROMPT}")[1:]:
        lines = part.splitlines()
        end = 1
        while not _is_complete("\n".join(lines[:end])):
            end += 1
        yield Command("\n".join(lines[:end]), "\n".join(lines[end:]))


def _is_complete(command: str) -> bool:
    """Returns whether a command ends here: without a backslash or an open quote."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


def assert_shown(shown: str, printed: str) -> None:
    """Asserts that each line of a page's output was printed, in their order, apart from figures.

    Args:
      shown: the output on the page; an ellipsis stands for anything.
      printed: what the command has printed.
    """
    rest = _without_figures(printed)
    for line in shown.splitlines():
        parts = [re.escape(_without_figures(part)) for part in _LEFT_OUT.split(line)]
        if any(parts):
            pattern = " ?.*? ?".join(parts)
            found = re.search(rf"(?<!\S){pattern}(?!\S)", rest)
            assert found, f"not printed: {line!r}, but: {printed}"
            rest = rest[found.end() :]


def _without_figures(text: str) -> str:
    """Returns text in one line with "#" in place of figures."""
    return _FIGURE.sub("#", re.sub(r"(?<=\[) | (?=\])", "", " ".join(text.split())))


def run_python_blocks(
    text: str, given: Mapping[str, object] | None = None
) -> tuple[dict[str, Any], str]:
    """Runs the Python blocks of a page in this process and in one namespace.

    Args:
      text: the page.
      given: names that the blocks use and do not define.

    Returns:
      The names in the end, and what the blocks printed.
    """
    names: dict[str, Any] = {**(given or {})}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for block in code_blocks(text):
            if block.language == _PYTHON:
                exec(compile(block.text, "page", "exec"), names)
    return names, printed.getvalue()


def link_checkout(folder: Path) -> None:
    """Links the scripts and packages of this checkout into a folder, without its data in runs/."""
    for path in [*ROOT.glob("*.py"), *(ROOT / name for name in _CHECKOUT)]:
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)


def run_page(text: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs the shell and Python blocks of a page in a new process, in one namespace.

    Args:
      text: the page.
      folder: the working folder; it gets links to the scripts.
      environment: environment variables to add.

    Returns:
      What the blocks printed, on both streams.
    """
    done = _run(
        [sys.executable, "-c", "".join(_statements(code_blocks(text)))], folder, environment
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_commands(
    commands: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Runs commands one after the other in one shell, which ends with the first that fails.

    Args:
      commands: the commands.
      folder: the working folder; it gets links to the scripts.
      environment: environment variables to add.

    Returns:
      What each command printed, on both streams.
    """
    with tempfile.TemporaryDirectory() as outputs:
        parts = [f"{{ {text}\n}} >{outputs}/{i} 2>&1\n" for i, text in enumerate(commands)]
        shell = ["bash", "-euo", "pipefail", "-c", "".join(parts)]
        done = _run(shell, folder, environment)
        paths = (Path(outputs, str(i)) for i in range(len(commands)))
        printed = [path.read_text("utf-8") for path in paths if path.exists()]
    if done.returncode:
        last = commands[max(0, len(printed) - 1)]
        raise AssertionError(f"{last}\nended with {done.returncode}: {printed[-1:]}{done.stdout}")
    return printed


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    """Runs a process as in an activated environment, in a folder that gets links to the scripts."""
    link_checkout(folder)
    return subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )


def _statements(blocks: Iterable[Block]) -> Iterable[str]:
    """Yields a Python program that runs the blocks."""
    yield "import subprocess\nnames = {}\n"
    for language, text in blocks:
        if language in _SHELL:
            shell = ["bash", "-euo", "pipefail", "-c", text]
            yield f"subprocess.run({shell!r}, check=True)\n"
        elif language == _PYTHON:
            yield f"exec(compile({text!r}, 'page', 'exec'), names)\n"
