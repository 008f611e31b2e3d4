# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes calls of the file system fail in the programs that a ScriptServer runs.

The calls are those of the C library, so that Python and TensorFlow meet the same errors; see
failing_calls.c.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import runpy
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.script_server import ScriptServer

#: Errors that say nothing about the files: input/output error, no permission, stale file handle,
#: timed out, try again, too many open files, busy, no memory.
ERRORS = (
    errno.EIO, errno.EACCES, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EMFILE, errno.EBUSY,
    errno.ENOMEM,
)  # fmt: skip
#: Runs a script, named by the first argument, with short pauses between tries.
HURRIED = "tests.faults.failing_calls"
_NUMBERS, _FOLDER = struct.Struct("4l"), 4096


class FailingCalls:
    """Which calls fail in a server's programs; made by `server_with_failing_calls`."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def set(self, folder: Path, first: int = 0, number: int = 0, error: int = 0) -> None:
        """Lets `number` calls below a folder fail, from the `first` on, and begins to count."""
        name = os.fsencode(folder)
        numbers = _NUMBERS.pack(first, first + number - 1, error, 0)
        self._memory[:] = numbers + name.ljust(_FOLDER, b"\0")

    @property
    def count(self) -> int:
        """The number of calls so far."""
        return _NUMBERS.unpack_from(self._memory)[3]


@contextlib.contextmanager
def server_with_failing_calls(folder: Path) -> Iterator[tuple[ScriptServer, FailingCalls]]:
    """Starts a server whose programs' calls fail; compiles the library for it in `folder`."""
    library, control = folder / "failing_calls.so", folder / "control"
    compiler = shutil.which("cc")
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    control.write_bytes(bytes(_NUMBERS.size + _FOLDER))
    with control.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        server = ScriptServer(LD_PRELOAD=str(library), FAILING_CALLS=str(control))
        with server:
            yield server, FailingCalls(memory)


if __name__ == "__main__":
    from albert_tf.io import storage

    storage.PAUSES = (0.01, 0.02, 0.03)
    sys.argv.pop(0)
    sys.modules.pop(sys.argv[0], None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
