# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Messages of the library."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.log import log, show


def test_messages_are_shown_like_output_and_warnings_on_standard_error(capsys):
    log.info("100% done")
    log.warning(AlbertError("one sentence."))
    assert capsys.readouterr() == ("100% done\n", "one sentence.\n")


def test_lines_fit_a_terminal_and_stay_whole_in_files():
    text, path = "word " * 30 + "end.", f"{'folder/' * 15}file"
    command = f"  albert classify '{path}' 'A text.' \\\n    --x='{path} {path}'"
    for stream, longest in ((io.StringIO(), 154), (terminal := io.StringIO(), 79)):
        terminal.isatty = lambda: True
        show(f"{text}\n{path}\n{command}", stream)
        *lines, last = stream.getvalue().removesuffix(f"\n{command}\n").splitlines()
        assert (max(map(len, lines)), last) == (longest, path)


OUTLIVING = """
import os, sys
from albert_tf.io.log import log
from albert_tf.io.progress import Progress
log.info("begun")
sys.stdin.read()
for _ in range(3):
    log.info("dropped " * 2000)
    Progress("train", 2).note("dropped")
    os.write(2, b"by native code")
with open(sys.argv[1], "w") as f:
    f.write("finished")
"""


@pytest.mark.parametrize("make", [os.pipe, pty.openpty])
def test_a_program_outlives_the_reader_of_its_messages_or_its_terminal(tmp_path, make):
    reader, writer = make()
    command = [sys.executable, "-c", OUTLIVING, tmp_path / "end"]
    pipes = {"stdin": subprocess.PIPE, "stdout": writer, "stderr": writer}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], **pipes) as process:
        os.close(writer)
        with open(reader, "rb", buffering=0) as output:
            line = b"".join(iter(lambda: output.read(1), b"\n"))
        assert line.strip() == b"begun"
        process.stdin.close()
        assert process.wait(60) == 0
    assert (tmp_path / "end").read_text() == "finished"
