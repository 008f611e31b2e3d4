# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.cli.script: errors, help, positional arguments, and a closed pipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.cli import script
from tests.support.script_flags import temporary_flags

#: Another copy of the project may be installed.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

SCRIPT = """
import sys
from absl import flags
from albert_tf.cli import script
from albert_tf.errors import AlbertError

def define_flags():
    flags.DEFINE_integer("lines", 0, "Lines to print.")
    flags.DEFINE_bool("wet", False, "Wet ink.")
    flags.DEFINE_string("ink", None, "Colour.", required=len(sys.argv) < 2)
    flags.DEFINE_string("paper", None, "Colour.", required=len(sys.argv) < 2)

def main():
    if flags.FLAGS.lines < 0:
        raise AlbertError("--lines is negative.")
    for _ in range(flags.FLAGS.lines):
        print("line")

script.run(main, define_flags)
"""


def run(tmp_path, arguments, **kwargs):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return subprocess.run(
        f"{sys.executable} {path} {arguments}",
        shell=True,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        **kwargs,
    )


def test_an_error_of_the_user_is_one_sentence_with_status_1(tmp_path):
    result = run(tmp_path, "--lines=-1")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: --lines is negative.\n"


def test_help_lists_the_flags_of_the_script(tmp_path):
    result = run(tmp_path, "--help")
    assert "Lines to print." in result.stdout
    assert (result.returncode, result.stderr) == (0, "")


def test_missing_misspelt_and_wrong_flags_are_reported_in_one_line(tmp_path):
    given = "", "--lins=3", "--lines=x", "--wet --nowet"
    missing, misspelt, wrong, both = (run(tmp_path, arguments) for arguments in given)
    assert both.stderr == "error: --wet is given more than once; see --help.\n"
    assert missing.stderr == "error: --ink and --paper must be given; see --help.\n"
    assert misspelt.stderr == (
        "error: Unknown command line flag 'lins'. Did you mean: lines ?; see --help.\n"
    )
    assert wrong.stderr.startswith("error: flag --lines=x: ")
    assert wrong.stderr.count("\n") == 1
    assert [result.returncode for result in (missing, misspelt, wrong, both)] == [1] * 4


@pytest.mark.parametrize("argument", [b"--ink=\xff", b"\xff"])
def test_an_argument_that_is_not_utf_8_is_refused(tmp_path, argument):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, path, argument], env=ENVIRONMENT, capture_output=True)
    assert done.returncode == 1
    shown = argument.decode(errors="surrogateescape")
    sentence = f"error: the argument {shown!r} is not UTF-8, rename the file; see --help.\n"
    assert done.stderr.decode() == sentence


def test_a_folder_that_no_check_has_found_unreadable_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script"])
    with temporary_flags(), pytest.raises(SystemExit) as stopped:
        script.run(lambda: os.listdir("/absent"), lambda: None)
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "error: No such file or directory: /absent.\n"


def test_a_closed_pipe_causes_no_stack_trace(tmp_path):
    result = run(tmp_path, "--lines=100000 | head -n 1")
    assert (result.stdout, result.stderr) == ("line\n", "")


@pytest.mark.parametrize(
    ("names", "given", "error"),
    [
        (("A", "[B]"), ["1"], None),
        (("A", "[B]"), [], "A is missing"),
        (("A", "[B]"), ["1", "2", "3"], "unexpected argument '3'"),
        (("A", "[B…]"), ["1", "2", "3"], None),
        (("A", "B…"), ["1"], "B is missing"),
    ],
)
def test_arguments_may_be_optional_or_repeated(names, given, error, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script", *given])
    passed = []
    with temporary_flags(), pytest.raises(SystemExit) as stopped:
        script.run(lambda *arguments: passed.append([*arguments]), lambda: None, names)
    if error:
        assert (stopped.value.code, passed) == (1, [])
        assert capsys.readouterr().err == f"error: {error}; see --help.\n"
    else:
        assert (stopped.value.code, passed) == (None, [given])
