# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages: finished ones are reused, failed ones continue, changed ones start anew."""

import json
import os
import sys

import pytest

import albert_tf
from albert_tf.errors import AlbertError
from demo.stages import LOG_FILE, RECORD_FILE, Stage, is_finished, run_stages

#: Appends a line to <folder>/log on each run; exits with --status.
SCRIPT = """
import os, sys
values = dict(flag[2:].split("=", 1) for flag in sys.argv[1:])
os.makedirs(values["folder"], exist_ok=True)
with open(values["folder"] + "/log", "a") as f:
    f.write(os.environ["PYTHONPATH"].split(os.pathsep)[0] + "\\n")
for number in range(30):
    print("line", number, flush=True)
print("the end", file=sys.stderr)
sys.exit(int(open(values["status"]).read()))
"""


@pytest.fixture
def make(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "status").write_text("0")

    def stage(name, inputs=(), **changes):
        folder = str(tmp_path / name)
        flags = {"folder": folder, "status": str(tmp_path / "status"), **changes}
        return Stage(f"Make {name}", folder, str(tmp_path / "script.py"), flags, list(inputs))

    return stage


def runs(stage):
    with open(f"{stage.folder}/log") as f:
        return len(f.readlines())


def test_a_finished_stage_is_reused(make, capfd):
    run_stages([make("a")])
    run_stages([make("a")])
    assert runs(make("a")) == 1
    assert is_finished(make("a").folder)
    assert "[1/1] Make a: finished before, reused" in capfd.readouterr().out


def test_a_stage_in_use_by_another_process_is_refused_and_not_emptied(make, hold):
    run_stages([make("a")])
    refused = pytest.raises(AlbertError, match=r" is in use by process ")
    with hold(os.path.dirname(make("a").folder)), refused:
        run_stages([make("a", other="flag")])
    assert runs(make("a")) == 1 and is_finished(make("a").folder)


def test_a_failed_stage_keeps_its_folder_and_continues(make, tmp_path):
    (tmp_path / "status").write_text("3")
    with pytest.raises(AlbertError, match="'Make a' ended with status 3"):
        run_stages([make("a")])
    assert not is_finished(make("a").folder)
    (tmp_path / "status").write_text("0")
    run_stages([make("a")])
    assert runs(make("a")) == 2


def test_output_is_kept_in_a_file_and_its_end_shown_after_a_failure(make, tmp_path, capfd):
    run_stages([make("a")])
    expected = "".join(f"line {i}\n" for i in range(30)) + "the end\n"
    assert (tmp_path / "a" / LOG_FILE).read_text() == expected
    output = capfd.readouterr()
    assert "line" not in output.out + output.err and "done in 0 s" in output.out
    (tmp_path / "status").write_text("3")
    with pytest.raises(AlbertError, match=r"its whole output is in .*stage\.log"):
        run_stages([make("b")])
    error = capfd.readouterr().err
    assert error.endswith("line 29\nthe end\n") and "line 11\n" in error
    assert "line 10\n" not in error


def test_a_terminal_shows_the_newest_line_in_place(make, capfd, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    run_stages([make("a")])
    output = capfd.readouterr().out
    assert output.count("\r\033[K  line") == 30
    assert output.endswith("\r\033[K  the end\r\033[K  done in 0 s\n")


def test_another_command_starts_in_a_new_folder_and_keeps_the_old_one(make, tmp_path, capfd):
    run_stages([make("a")])
    (tmp_path / "a" / "mine").touch()
    run_stages([make("a", more="1")])
    assert runs(make("a")) == 1
    assert not (tmp_path / "a" / "mine").exists()
    assert (tmp_path / "a.former" / "mine").exists() and (tmp_path / "a.former" / "log").exists()
    assert f"{tmp_path}/a.former" in capfd.readouterr().out


def test_a_dependent_stage_runs_again_if_the_command_changes_but_not_the_time(make, tmp_path):
    def both(**changes):
        first = make("a", **changes)
        return [first, make("b", inputs=[f"{first.folder}/{RECORD_FILE}"])]

    run_stages(both())
    record = json.loads((tmp_path / "a" / RECORD_FILE).read_text())
    (tmp_path / "a" / RECORD_FILE).write_text(json.dumps({**record, "seconds": 1e6}))
    run_stages(both())
    assert runs(make("b")) == 1
    run_stages(both(more="1"))
    assert runs(make("b")) == 1 and (tmp_path / "b.former").exists()


def test_scripts_import_this_copy_of_the_project(make):
    run_stages([make("a")])
    with open(f"{make('a').folder}/log") as f:
        assert f.read().strip() == albert_tf.__path__[0].rpartition("/")[0]


def test_commands_are_shown_as_typed_in_a_shell():
    flags = {"do_train": True, "text": "two words", "output_dir": "x" * 70}
    stage = Stage("T", "f", "-m module command", flags, [])
    assert stage.command() == (
        f"python -m module command --do_train '--text=two words' \\\n    --output_dir={'x' * 70}"
    )
    assert stage.arguments()[:3] == ["-m", "module", "command"]
    assert sys.executable not in stage.command()
