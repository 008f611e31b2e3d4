# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.__main__: the list of commands, their help, and what each of them runs."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf import __main__ as albert
from albert_tf import __version__

ROOT = Path(__file__).resolve().parents[1]
#: Prints, as JSON, what each command prints for --help, and whether TensorFlow was imported.
ALL_HELP = """
import contextlib, io, json, sys
from absl import app
from albert_tf.__main__ import COMMANDS, main
from tests.support.script_flags import temporary_flags
app.define_help_flags()
printed = {}
for name in COMMANDS:
    sys.argv = ["albert", name, "--help"]
    with temporary_flags(), contextlib.redirect_stdout(io.StringIO()) as printed[name]:
        try:
            main()
        except SystemExit as stop:
            assert stop.code == 0
texts = {name: text.getvalue() for name, text in printed.items()}
print(json.dumps([texts, "tensorflow" in sys.modules]))
"""


def python(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def run(run_script, monkeypatch):
    """Runs `albert` in this process."""
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", None)
    return lambda *arguments: run_script(albert, *arguments)


def test_the_list_of_commands_fits_a_small_terminal_and_needs_no_large_import():
    code = "from albert_tf.__main__ import main; import sys; sys.argv = ['albert', '--help']; "
    check = "main(); assert not {'tensorflow', 'numpy', 'absl'} & {*sys.modules}"
    done = python("-c", code + check)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    assert re.findall(r"^  ([\w-]+) +\w", done.stdout, re.M) == [*albert.COMMANDS]
    assert python("-m", "albert_tf", "-h").stdout == done.stdout


def test_help_of_every_command_shows_examples_without_importing_tensorflow():
    done = python("-c", ALL_HELP)
    assert done.returncode == 0, done.stderr
    texts, has_tensorflow = json.loads(done.stdout)
    assert not has_tensorflow
    for name, text in texts.items():
        explained, flags = text.split("\nflags:\n")
        assert re.search(rf"^  albert {name} \S", explained, re.M), name
        assert "python " not in explained, name
        assert max(map(len, explained.splitlines())) <= 80, name
        assert f"\nalbert {name}:\n  --" in flags, name
    for name in ("classify", "answer", "choose", "tag"):
        assert f"\n  albert {name} runs/" in texts[name]
        assert re.search(rf"^  albert {name} --.*\bdo_train", texts[name], re.M)


@pytest.mark.parametrize("name", albert.COMMANDS)
def test_a_command_runs_the_main_function_of_its_module(name, run, monkeypatch):
    ran = []
    modules = albert.COMMANDS[name][1:]
    for module in modules:
        monkeypatch.setattr(
            importlib.import_module(f"albert_tf.{module}"),
            "main",
            lambda module=module: ran.append((module, sys.argv)),
        )
    for arguments in (["--do_train"], ["model", "text"]):
        run(name, *arguments).ok()
    program = f"albert {name}"
    assert ran == [(modules[-1], [program, "--do_train"]), (modules[0], [program, "model", "text"])]


def test_a_script_behaves_as_without_albert(run):
    done = run("pretrain", "--do_eval", "--output_dir=run")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: --do_eval needs --eval_input_file with held-out records.\n"


@pytest.mark.parametrize(
    ("arguments", "printed", "error"),
    [
        (
            ["clasify"],
            "",
            "error: There is no command 'clasify'; did you mean classify? See albert --help.",
        ),
        (["--do_train"], "", "error: There is no command '--do_train'. See albert --help."),
        ([], "", albert.overview()),
        (["--version"], f"albert_tf {__version__}", ""),
    ],
)
def test_what_is_no_command_gets_its_answer(arguments, printed, error, run):
    lines = (f"{text}\n" if text else "" for text in (printed, error))
    assert run(*arguments) == (int(bool(error)), *lines)
