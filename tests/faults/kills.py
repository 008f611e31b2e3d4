# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Series of runs that are repeatedly killed with SIGKILL and resumed with the same command."""

from __future__ import annotations

import dataclasses
import os
import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults.same import compare
from tests.support.script_server import ScriptServer

#: Seconds between two checks of a folder.
_LOOK_SECONDS = 0.0004
#: A run that takes longer is considered to hang.
_LIMIT_SECONDS = 150
#: Names of the unfinished files of a killed process.
_TEMPORARY = re.compile(r"\.tmp|_temp|\.tempstate")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A command to kill."""

    name: str
    script: str  # The module to run.
    arguments: Callable[[Path, Path], Sequence[str]]  # Given the folders of the data and outputs.
    folders: Sequence[str] = ("checkpoints",)  # Where the script writes most, in the outputs.
    cpus: int = 1  # Logical devices.


@dataclasses.dataclass
class Figures:
    """The statistics of a series."""

    kills: int = 0
    runs: int = 0
    resumptions: int = 0
    compared: int = 0
    differences: list[str] = dataclasses.field(default_factory=list)

    def line(self, name: str) -> str:
        """Formats all in one line."""
        return (
            f"{name}: {self.kills} kills, {self.runs} runs finished, {self.resumptions} "
            f"resumptions, {self.compared:,} bytes compared, {len(self.differences)} differences"
        )


class Series:
    """Kills one configuration at random moments; `data` and `folder` are for inputs and outputs."""

    def __init__(
        self, configuration: Configuration, server: ScriptServer, data: Path, folder: Path
    ) -> None:
        self._configuration, self._server = configuration, server
        self._data, self._folder = data, folder
        self._rng = random.Random(f"{configuration.name} 0")
        self.figures = Figures()

    @property
    def reference(self) -> Path:
        """The output folder of the uninterrupted run."""
        return self._folder / "whole"

    def run(self, kills: int) -> Figures:
        """Repeats the run until it was killed that many times; compares the results of each."""
        began = time.monotonic()
        self._attempt(self.reference, None)
        self._duration = time.monotonic() - began
        # A few kills are spread over the whole run, too.
        self._most = max(4, 15 // kills)
        figures = self.figures
        while figures.kills < kills:
            output = self._folder / f"killed-{figures.runs}"
            while self._attempt(output, self._moment(output) if figures.kills < kills else None):
                pass
            figures.runs += 1
            comparison = compare(self.reference, output)
            figures.compared += comparison.compared
            figures.differences += [f"{output.name}: {line}" for line in comparison.differences]
        return figures

    def _attempt(self, output: Path, reached: Callable[[], bool] | None) -> bool:
        """Runs the command; returns whether it was killed, as the moment came before its end."""
        c, log = self._configuration, self._folder / f"{output.name}.log"
        begin = log.stat().st_size if log.exists() else 0
        arguments = c.arguments(self._data, output)
        with self._server.running(c.script, arguments, log, cpus=c.cpus) as group:
            deadline = time.monotonic() + _LIMIT_SECONDS
            status, killed = None, False
            while status is None:
                assert time.monotonic() < deadline, f"{c.name} hangs: {log.read_text()}"
                status = self._server.status(_LOOK_SECONDS)
                if reached and not killed and status is None and reached():
                    os.killpg(group, signal.SIGKILL)
                    killed = True
        text = log.read_text(errors="replace")[begin:]
        # A process may have ended just before the signal.
        killed = status == -signal.SIGKILL
        assert killed or status == 0, f"{c.name} ended with {status}: {text}"
        if output != self.reference:
            self.figures.resumptions += text.count("Resuming ")
        self.figures.kills += killed
        return killed

    def _moment(self, output: Path) -> Callable[[], bool]:
        """Draws a moment of the next attempt: a time, or when a file is written."""
        kind = self._rng.random()
        if kind < 0.25:
            end = time.monotonic() + self._rng.uniform(0.0, self._duration)
            return lambda: time.monotonic() >= end
        # The output folder itself is written to at the beginning and at the end.
        folder = "" if self._rng.random() < 0.15 else self._rng.choice(self._configuration.folders)
        if kind < 0.5:
            return changes(output / folder, self._rng.randint(1, 2 * self._most), set)
        return changes(output / folder, self._rng.randint(1, self._most), unfinished)


def changes(folder: Path, number: int, which: Callable[[set[str]], set[str]]) -> Callable[[], bool]:
    """Tests, when called, whether `number` new names that `which` selects are in a folder."""
    seen, count = which(names_in(folder)), 0

    def reached() -> bool:
        nonlocal seen, count
        now = which(names_in(folder))
        count += bool(now - seen)
        seen = now
        return count >= number

    return reached


def unfinished(names: set[str]) -> set[str]:
    """Selects the names of files and folders that are being written."""
    return {name for name in names if _TEMPORARY.search(name)}


def names_in(folder: Path) -> set[str]:
    """Returns the paths of files and folders in a folder, which may be missing, without events."""
    names = set()
    try:
        for entry in os.scandir(folder):
            names.add(entry.name)
            if entry.name != "events" and entry.is_dir(follow_symlinks=False):
                names |= {f"{entry.name}/{name}" for name in names_in(Path(entry.path))}
    except (FileNotFoundError, NotADirectoryError):
        pass
    return names
