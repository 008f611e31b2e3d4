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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Names in a checkout that commands and programs on pages use.
_CHECKOUT = ("albert_tf", "data_prep", "demo", "scripts", "tests")


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Returns the language and the text of the fenced code blocks of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.M | re.S)


def replaced(text: str, replacements: Mapping[str, str]) -> str:
    """Replaces parts of a page, all of which must occur."""
    for old, new in replacements.items():
        assert old in text, f"{old!r} is not on the page"
        text = text.replace(old, new)
    return text


def _session(text: str) -> Iterator[str]:
    """Yields the commands of a session, which begin with "$ "; nothing if there is none."""
    for part in f"\n{text}".split("\n$ ")[1:]:
        lines = part.splitlines()
        end = 1
        while not _is_complete("\n".join(lines[:end])):
            end += 1
        yield "\n".join(lines[:end])


def _is_complete(command: str) -> bool:
    """Returns whether a command ends here: without a backslash or an open quote."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


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
        for language, code in code_blocks(text):
            if language == "python":
                exec(compile(code, "page", "exec"), names)
    return names, printed.getvalue()


def run_page(
    text: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    python: bool = True,
    skip: tuple[str, ...] = (),
) -> str:
    """Runs shell blocks, the commands of sessions, and Python blocks in a new process.

    Args:
      text: the page.
      folder: the working folder; it gets links to the scripts, but not to the data in runs/.
      environment: environment variables to add.
      python: run the Python blocks, too, in one namespace.
      skip: beginnings of shell code to leave out.

    Returns:
      What the blocks printed, on both streams.
    """
    for path in [*ROOT.glob("*.py"), *(ROOT / name for name in _CHECKOUT)]:
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    program = "import subprocess\nnames = {}\n"
    for language, code in code_blocks(text):
        if language == "python" and python:
            program += f"exec(compile({code!r}, 'page', 'exec'), names)\n"
        for command in [code] if language in ("bash", "sh") else _session(code):
            if not command.startswith(skip):
                shell = ["bash", "-xeuo", "pipefail", "-c", command]
                program += f"subprocess.run({shell!r}, check=True)\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
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
    assert done.returncode == 0, done.stdout
    return done.stdout
