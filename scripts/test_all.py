# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs all tests, the slow ones too, in parts with a time budget each: `make test-all`.

  python scripts/test_all.py                       every part
  python scripts/test_all.py faults distributed    some of them

A part that takes longer than its budget is stopped and counts as failed. JUnit files are written
to runs/test_all. At the end there is a table of what ran; the exit status is 1 if a test
failed or a part ran out of time.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "runs" / "test_all"


class Part(NamedTuple):
    """Tests that run together.

    Attributes:
      minutes: time budget.
      marker: which tests, as pytest's -m.
      paths: files and folders of the tests; all if empty.
    """

    minutes: float
    marker: str
    paths: tuple[str, ...] = ()


#: Folders whose slow tests are a part of their own.
_SLOW = {
    "benchmarks": 20,
    "data_prep": 20,
    "distributed": 60,
    "export": 20,
    "faults": 90,
    "fuzz": 30,
    "tasks": 20,
    "training": 60,
}
PARTS = {
    "default": Part(30, "not slow and not tooling"),
    "tooling": Part(20, "tooling and not slow"),
    **{name: Part(minutes, "slow", (f"tests/{name}",)) for name, minutes in _SLOW.items()},
}


def other_slow_tests() -> Part:
    """The slow tests outside of the folders above."""
    paths = [path for path in sorted((ROOT / "tests").iterdir()) if path.name not in _SLOW]
    tests = [path for path in paths if path.match("test_*.py") or any(path.rglob("test_*.py"))]
    return Part(60, "slow", tuple(str(path.relative_to(ROOT)) for path in tests))


class Outcome(NamedTuple):
    """Result of a part: numbers of tests, and whether it ran out of time."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    stopped: bool


def run(name: str, part: Part) -> Outcome:
    """Runs a part; kills it when its time is over."""
    report = OUTPUT / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist=worksteal", "-m", part.marker]
    command += [f"--junitxml={report}", "-q", *part.paths]
    began = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        try:
            process.wait(60 * part.minutes)
            stopped = False
        except subprocess.TimeoutExpired:
            stopped = True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    seconds = time.monotonic() - began
    if not report.exists():
        return Outcome(0, 0, 0, seconds, stopped)
    suite = ElementTree.parse(report).getroot()[0]
    tests, errors, failures, skipped = (
        int(suite.get(key)) for key in ("tests", "errors", "failures", "skipped")
    )
    failed = errors + failures
    return Outcome(tests - failed - skipped, failed, skipped, seconds, stopped)


def table(outcomes: dict[str, Outcome], parts: dict[str, Part]) -> str:
    """A line for each part."""
    lines = [f"{'part':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'minutes':>9}{'budget':>8}"]
    for name, found in outcomes.items():
        numbers = f"{found.passed:>8}{found.failed:>8}{found.skipped:>9}"
        note = "  out of time" if found.stopped else ""
        minutes = f"{found.seconds / 60:>9.1f}{parts[name].minutes:>8}"
        lines.append(f"{name:<14}{numbers}{minutes}{note}")
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parts = {**PARTS, "others": other_slow_tests()}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    names = parser.parse_args().parts or list(parts)
    if unknown := sorted(set(names) - set(parts)):
        parser.error(f"there is no part {unknown[0]}; parts are {', '.join(parts)}.")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for number, name in enumerate(names, start=1):
        print(f"\nPart {number} of {len(names)}: {name}", flush=True)
        outcomes[name] = run(name, parts[name])
        print(table(outcomes, parts), flush=True)
    # A part without a report, or without a test, did not do its job.
    sys.exit(any(x.failed or x.stopped or not x.passed for x in outcomes.values()))


if __name__ == "__main__":
    main()
