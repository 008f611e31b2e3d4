# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs commands one after the other, and what is finished only once."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence

from albert_tf import files
from albert_tf.errors import AlbertError

RECORD_FILE = "stage.json"


@dataclasses.dataclass(frozen=True)
class Stage:
    """One command and the folder that holds everything it writes.

    Attributes:
      title: what it does.
      folder: written by this stage alone; emptied if it was made by another command or input.
      script: path of the script, from the project's root.
      flags: its flags.
      inputs: files it reads.
      seconds: what it takes on two cores, for the time left.
    """

    title: str
    folder: str
    script: str
    flags: dict[str, object]
    inputs: Sequence[str]
    seconds: int

    def arguments(self) -> list[str]:
        """The command line after `python`."""
        return [
            self.script,
            *(f"--{k}" if v is True else f"--{k}={v}" for k, v in self.flags.items()),
        ]

    def fingerprint(self) -> str:
        """Of the command and the contents of its inputs."""
        digest = hashlib.sha256("\0".join(self.arguments()).encode())
        for path in self.inputs:
            digest.update(files.sha256(path).encode())
        return digest.hexdigest()


def run_stages(stages: Sequence[Stage]) -> None:
    """Runs the stages in turn; a finished one is reused, an interrupted one goes on.

    Raises:
      AlbertError: a command failed.
    """
    seconds_left = sum(stage.seconds for stage in stages)
    for number, stage in enumerate(stages, start=1):
        record_path = os.path.join(stage.folder, RECORD_FILE)
        record = files.read_json(record_path) if os.path.exists(record_path) else {}
        fingerprint = stage.fingerprint()
        title = f"[{number}/{len(stages)}] {stage.title}"
        if record == {"fingerprint": fingerprint, "finished": True}:
            print(f"{title}: finished before, reused", flush=True)
        else:
            minutes = -(-seconds_left // 60)
            print(f"\n{title} (about {minutes} min to the end of the demo)", flush=True)
            if record and record["fingerprint"] != fingerprint:
                shutil.rmtree(stage.folder)
            files.write_json(record_path, {"fingerprint": fingerprint, "finished": False})
            _run(stage)
            files.write_json(record_path, {"fingerprint": fingerprint, "finished": True})
        seconds_left -= stage.seconds


def _run(stage: Stage) -> None:
    arguments = stage.arguments()
    shown = textwrap.fill(
        shlex.join(["python", *arguments]),
        76,
        initial_indent="$ ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    print(shown.replace("\n", " \\\n"), flush=True)
    process = subprocess.Popen([sys.executable, *arguments])
    # A terminal sends Ctrl-C to the script as well, which saves its work before it ends.
    former = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    status = process.wait()
    for number, handler in former.items():
        signal.signal(number, handler)
    if status:
        raise AlbertError(
            f"The stage {stage.title!r} ended with status {status} (see above); run the demo again "
            "to go on from there."
        )
