# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a page as a reader in a checkout would, in their order."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
#: Names in a checkout that commands and programs on pages use.
_CHECKOUT = ("albert_tf", "data_prep", "demo", "scripts")
_SHELL, _PYTHON = "bash", "python"


class Block(NamedTuple):
    """A code block: its language ("bash", "python", …) and its text."""

    language: str
    text: str


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


def run_python_blocks(text: str) -> tuple[dict[str, Any], str]:
    """Runs the Python blocks of a page in this process and in one namespace.

    Returns:
      What the blocks defined, and what they printed.
    """
    names: dict[str, Any] = {}
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
    link_checkout(folder)
    done = subprocess.run(
        [sys.executable, "-c", "".join(_statements(code_blocks(text)))],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _statements(blocks: Iterable[Block]) -> Iterable[str]:
    """Yields a Python program that runs the blocks."""
    yield "import subprocess\nnames = {}\n"
    for language, text in blocks:
        if language == _SHELL:
            shell = ["bash", "-euo", "pipefail", "-c", text]
            yield f"subprocess.run({shell!r}, check=True)\n"
        elif language == _PYTHON:
            yield f"exec(compile({text!r}, 'page', 'exec'), names)\n"
