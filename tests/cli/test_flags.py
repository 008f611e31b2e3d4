# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.cli.flags: flags of settings, ~ in paths, and flags without effect."""

from __future__ import annotations

import importlib
import os
import pwd
import re
from pathlib import Path

import pytest
from absl import flags

from albert_tf.cli.flags import PathParser, define_path
from albert_tf.scripts import run_classifier
from tests.support.script_flags import temporary_flags

ROOT = Path(__file__).parents[2]
#: Possible names of path flags.
PATH_NAME = re.compile(r"(^|_)(dirs?|files?|paths?|folders?|directory|prefix|checkpoints?|handle)$")


def define_functions():
    """Returns the functions that define flags by the script's name and command."""
    functions = {}
    for path in ROOT.rglob("*.py"):
        path = path.relative_to(ROOT)
        if path.parts[0].startswith(".") or path.parts[0] in ("tests", "scripts", "build", "runs"):
            continue
        if not re.search(r"script\.(run|command)\b", (ROOT / path).read_text("utf-8")):
            continue
        script = importlib.import_module(".".join(path.with_suffix("").parts))
        if hasattr(script, "define_flags"):
            functions[str(path)] = script.define_flags
        for command, (_, define, *_) in getattr(script, "COMMANDS", {}).items():
            functions[f"{path} {command}"] = define
    return functions


@pytest.fixture
def fresh_flags():
    """All flags; those defined in a test are removed after it."""
    with temporary_flags() as values:
        yield values


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_every_path_flag_of_every_script_is_defined_as_one(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    functions, wrong = define_functions(), []
    expected = {"albert_tf/scripts/run_squad.py", "demo/run.py"}
    expected |= {"albert_tf/commands/embed.py"}
    assert expected <= set(functions)
    for script, define in functions.items():
        absl_flags = set(flags.FLAGS)
        with temporary_flags():
            define()
            parsers = {name: flags.FLAGS[name].parser for name in set(flags.FLAGS) - absl_flags}
        for name, parser in parsers.items():
            if PATH_NAME.search(name) and not isinstance(parser, PathParser):
                wrong.append(f"{script} --{name}")
    assert wrong == []


def test_the_home_directory_is_expanded_where_a_shell_would(home):
    assert PathParser().parse("~") == str(home)
    assert PathParser().parse("~/runs/a") == f"{home}/runs/a"
    user = pwd.getpwuid(os.getuid())
    assert PathParser().parse(f"~{user.pw_name}/x") == f"{user.pw_dir.rstrip('/')}/x"
    for path in ("a~b", "dir/~/x", "dir/~x", "gs://bucket/~x", "./~", "", "x~", "~nobody-here/x"):
        assert PathParser().parse(path) == path


def test_every_item_of_a_list_is_expanded(home, fresh_flags):
    define_path("one", "~/default", "A path.")
    define_path("several", None, "Paths.")
    fresh_flags(["script", "--several=~/a*, ~/b,c~,gs://b/~x"])
    assert fresh_flags.one == f"{home}/default"
    assert fresh_flags.several == f"{home}/a*,{home}/b,c~,gs://b/~x"


TRAIN = ["--do_train", "--output_dir=runs/none"]
#: Script, command line and error.
REFUSED = [
    ("scripts.run_classifier", ["--task_name=rte", "--data_dir=glue", "--train_file=a.tsv"],
     "--train_file would be ignored: for files of your own, leave --task_name out"),
    ("scripts.run_classifier", ["--task_name=sts-b", "--data_dir=glue", "--regression",
                        "--label_column=score"],
     "--label_column, --regression would be ignored"),
    ("scripts.run_classifier", ["--train_file=a.tsv", "--data_dir=glue"],
     "--data_dir would be ignored: it requires --task_name="),
    ("scripts.run_classifier", ["--train_file=a.tsv", "--eval_every_steps=5"],
     "--eval_every_steps would be ignored: without --do_eval"),
    ("scripts.run_pretraining", ["--input_file=records", "--tpu_name=local"],
     "--tpu_name needs --strategy=tpu"),
    ("scripts.run_race", ["--train_file=a.jsonl", "--data_dir=RACE"],
     "--train_file would be ignored"),
    ("scripts.export_tfhub", ["--albert_directory=a", "--export_path=b", "--max_seq_length=64"],
     "--max_seq_length would be ignored"),
    ("scripts.export_tfhub", ["--albert_directory=a", "--export_path=b", "--precision=int8"],
     "='saved_model' and --precision='int8' cannot be combined; "),
    ("scripts.export_tfhub", ["--albert_directory=a", "--export_path=b", "--format=tflite",
                              "--export_type=preprocessing"],
     "='float32' cannot be combined with --export_type=preprocessing; choose from "),
    ("data_prep.split_sentences", ["--input_file=a", "--output_file=b", "--input_format=jsonl",
                                   "--document_blank_lines=1"],
     "--document_blank_lines would be ignored"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "arguments", "message"), REFUSED)
def test_a_flag_of_another_mode_is_refused(script, arguments, message, run_script):
    train = TRAIN if script.startswith("scripts.run_") else []
    done = run_script(importlib.import_module(f"albert_tf.{script}"), *train, *arguments)
    assert done.returncode == 1
    assert message in done.stderr


def test_flags_without_effect_are_mentioned(run_script, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    done = run_script(
        run_classifier,
        "--do_eval",
        f"--eval_file={tmp_path}/dev.tsv",
        f"--output_dir={tmp_path}/run",
        "--train_file=train.tsv",
        "--learning_rate=1e-4",
        "--num_seeds=3",
        "--init_checkpoint=runs/base",
    )
    assert (
        "Without --do_train, this has no effect: --init_checkpoint, --learning_rate, --num_seeds, "
        "--train_file." in " ".join(done.stdout.split())
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
