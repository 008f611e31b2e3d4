# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs commands one after the other, and skips those that have finished before.

The terminal shows each command and, while it runs, the newest line of its output. The whole output
is in the stage's LOG_FILE.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from albert_tf.errors import AlbertError
from albert_tf.io import files, removal
from albert_tf.io.locks import lock_folder

RECORD_FILE = "stage.json"
LOG_FILE = "stage.log"
#: Seconds between the lines that are shown if the output is not a terminal.
LINE_SECONDS = 30.0
#: Lines of a failed command's output that are printed.
_LAST_LINES = 20
_ROOT = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Stage:
    """One command and the folder that holds everything it writes.

    Attributes:
      title: what it does.
      folder: written by this stage alone; renamed if another command or other inputs made it.
      script: path of the script, from the project's root; or "-m", a module and its command.
      flags: its flags.
      inputs: files it reads. RECORD_FILE in another stage's folder stands for the whole folder.
      seconds: how long it takes on two cores, for the estimate of the time left; 0: unknown.
    """

    title: str
    folder: str
    script: str
    flags: dict[str, object]
    inputs: Sequence[str]
    seconds: float = 0

    def arguments(self) -> list[str]:
        """Returns the command line after `python`."""
        return [
            *self.script.split(),
            *(f"--{k}" if v is True else f"--{k}={v}" for k, v in self.flags.items()),
        ]

    def command(self) -> str:
        """Returns the command as typed in a shell, in lines of at most 80 columns."""
        shown = textwrap.fill(
            shlex.join(["python", *self.arguments()]),
            76,
            subsequent_indent="    ",
            break_on_hyphens=False,
            break_long_words=False,
        )
        return shown.replace("\n", " \\\n")

    def fingerprint(self) -> str:
        """Returns a hash of the command and of its inputs' contents (or of what made them)."""
        digest = hashlib.sha256("\0".join(self.arguments()).encode())
        for path in self.inputs:
            of_stage = os.path.basename(path) == RECORD_FILE
            content = files.read_json(path)["fingerprint"] if of_stage else files.sha256(path)
            digest.update(content.encode())
        return digest.hexdigest()


def run_stages(stages: Sequence[Stage]) -> None:
    """Runs the stages in turn; reuses finished ones and continues interrupted ones.

    RECORD_FILE in a stage's folder holds the fingerprint of what made it and, once it has finished,
    the seconds it took (of the last attempt, if it was interrupted).

    Raises:
      AlbertError: a command failed, or another process is running the stage.
    """
    seconds_left = sum(stage.seconds for stage in stages)
    for number, stage in enumerate(stages, start=1):
        record_path = os.path.join(stage.folder, RECORD_FILE)
        record = _record(stage.folder)
        fingerprint = stage.fingerprint()
        title = f"[{number}/{len(stages)}] {stage.title}"
        if record.get("fingerprint") == fingerprint and record["finished"]:
            print(f"{title}: finished before, reused", flush=True)
        else:
            left = f" (about {-(-seconds_left // 60):.0f} min to the end)" if seconds_left else ""
            print(f"\n{title}{left}", flush=True)
            # The command takes its own lock, in the folder.
            with lock_folder(os.path.dirname(stage.folder)):
                if record and record["fingerprint"] != fingerprint:
                    former = removal.set_aside(stage.folder, "former")
                    print(f"  The earlier results, of other inputs or settings: {former}")
                files.write_json(record_path, {"fingerprint": fingerprint, "finished": False})
                began = time.monotonic()
                _run(stage)
                seconds = round(time.monotonic() - began, 1)
                print(f"  done in {seconds:.0f} s", flush=True)
                finished = {"finished": True, "seconds": seconds}
                files.write_json(record_path, {"fingerprint": fingerprint, **finished})
        seconds_left -= stage.seconds


def is_finished(folder: str) -> bool:
    """Returns whether the stage that writes into a folder has finished."""
    return _record(folder).get("finished", False)


def _record(folder: str) -> dict[str, object]:
    import tensorflow as tf

    path = os.path.join(folder, RECORD_FILE)
    return files.read_object(path, "record of a stage") if tf.io.gfile.exists(path) else {}


def _run(stage: Stage) -> None:
    print(textwrap.indent(stage.command(), "  ").replace("  ", "$ ", 1), flush=True)
    # Scripts of this copy of the project import the packages of this copy.
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, *stage.arguments()],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    # A terminal sends Ctrl-C to the script as well, which saves its work before it ends.
    handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    log_path = os.path.join(stage.folder, LOG_FILE)
    last = collections.deque(_shown(_logged(process.stdout, log_path)), _LAST_LINES)
    status = process.wait()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if status:
        print("".join(last), end="", file=sys.stderr)
        raise AlbertError(
            f"The stage {stage.title!r} ended with status {status}; its whole output is in "
            f"{log_path}. Run the same command again to continue from there."
        )


def _logged(lines: Iterator[str], path: str) -> Iterator[str]:
    """Yields the lines, and appends each to a file."""
    import tensorflow as tf

    with tf.io.gfile.GFile(path, "a") as log:
        for line in lines:
            log.write(line)
            log.flush()
            yield line


def _shown(lines: Iterator[str]) -> Iterator[str]:
    """Yields the lines; shows the newest in place on a terminal, one now and then elsewhere."""
    on_terminal = sys.stdout.isatty()
    next_line = time.monotonic() + LINE_SECONDS
    for line in lines:
        text = "  " + line.strip()
        if on_terminal and line.strip():
            print(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
        elif line.strip() and time.monotonic() >= next_line:
            next_line = time.monotonic() + LINE_SECONDS
            print(text, flush=True)
        yield line
    if on_terminal:
        print("\r\033[K", end="", flush=True)
