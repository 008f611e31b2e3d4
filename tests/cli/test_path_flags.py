# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.cli.path_flags: ~ in the path flags of all scripts, and checks of paths."""

from __future__ import annotations

import importlib
import os
import pwd
import re
from pathlib import Path

import pytest
from absl import flags

from albert_tf.cli.path_flags import (
    PathParser,
    check_paths,
    check_records,
    define_path,
    define_paths,
    expand_home,
)
from albert_tf.errors import AlbertError
from albert_tf.io import files
from data_prep import split_sentences
from tests.support.script_flags import temporary_flags

ROOT = Path(__file__).parents[2]
#: Flags for text or a list other than paths.
NO_PATHS = {
    *("beam_options", "checkpoint_name", "chips", "columns", "context", "gcp_project"),
    *("glue_tasks", "layers", "methods", "question"),
    *(
        "micro_batches",
        "minutes",
        "name",
        "only",
        "precision",
        "precisions",
        "recompute",
        "seeds",
        "seq_lengths",
        "shapes",
        "trained_on",
    ),
    *("task_name", "tasks", "text_field", "tpu_name", "tpu_zone", "ways"),
    *("id_column", "label_column", "text_column", "text_pair_column"),
}
#: Possible names of path flags.
PATH_NAME = re.compile(r"(^|_)(dirs?|files?|paths?|folders?|directory|prefix|checkpoints?|handle)$")


def define_functions():
    """Returns the functions that define flags by the script's name and command."""
    functions = {}
    for path in ROOT.rglob("*.py"):
        path = path.relative_to(ROOT)
        if path.parts[0].startswith(".") or path.parts[0] in ("tests", "scripts", "build", "runs"):
            continue
        if not re.search(r"script\.run(_command)?\b", (ROOT / path).read_text("utf-8")):
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
    expected = {"run_squad.py", "demo/run.py", "albert_tf/tasks/squad/scoring.py"}
    expected |= {"albert_tf/commands/embed.py"}
    assert expected <= set(functions)
    for script, define in functions.items():
        absl_flags = set(flags.FLAGS)
        with temporary_flags():
            define()
            parsers = {name: flags.FLAGS[name].parser for name in set(flags.FLAGS) - absl_flags}
        for name, parser in parsers.items():
            text = type(parser) in (flags.ArgumentParser, flags.ListParser)
            may_be_path = PATH_NAME.search(name) or (text and name not in NO_PATHS)
            if may_be_path and not isinstance(parser, PathParser):
                wrong.append(f"{script} --{name}")
    assert wrong == []


def test_the_home_directory_is_expanded_where_a_shell_would(home):
    assert expand_home("~") == str(home)
    assert expand_home("~/runs/a") == f"{home}/runs/a"
    user = pwd.getpwuid(os.getuid())
    assert expand_home(f"~{user.pw_name}/x") == f"{user.pw_dir.rstrip('/')}/x"
    for path in ("a~b", "dir/~/x", "dir/~x", "gs://bucket/~x", "gs://~/x", "./~", "", "x~"):
        assert expand_home(path) == path


def test_a_root_folder_that_is_home_gives_no_double_slash(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    assert expand_home("~") == "/"
    assert expand_home("~/x") == "/x"


def test_a_missing_home_directory_is_refused(home, monkeypatch):
    with pytest.raises(ValueError, match="~nobody-here has no home directory here; give the whole"):
        expand_home("~nobody-here/x")
    Path("~nobody-here").mkdir()
    assert expand_home("~nobody-here") == "~nobody-here"
    monkeypatch.setenv("HOME", "")
    with pytest.raises(ValueError, match="~ has no home directory here"):
        expand_home("~/x")


def test_every_item_of_a_list_is_expanded(home, fresh_flags):
    define_path("one", "~/default", "A path.")
    define_paths("several", None, "Paths.")
    fresh_flags(["script", "--several=~/a*, ~/b,c~,gs://b/~x"])
    assert fresh_flags.one == f"{home}/default"
    assert fresh_flags.several == f"{home}/a*,{home}/b,c~,gs://b/~x"


def test_a_script_reads_and_writes_below_the_home_directory(home, run_script):
    for name in ("a", "b1"):
        (home / f"{name}.txt").write_text("One sentence. Another one.\n")
    run_script(split_sentences, "--input_file=~/a.txt,~/b*", "--output_file=~/out/x.txt").ok()
    assert (home / "out/x.txt").read_text().count("One sentence.") == 2
    assert not Path("~").exists()


def test_unknown_home_directories_are_reported_in_one_line(home, run_script):
    done = run_script(split_sentences, "--input_file=~nobody-here/a", "--output_file=x")
    assert done.returncode == 1
    assert "--input_file=~nobody-here/a: ~nobody-here has no home directory here" in done.stderr
    assert "Traceback" not in done.stderr


def test_paths_are_checked_unless_they_are_remote_or_unused(home, fresh_flags):
    define_path("used", None, "A file.", files.check_file)
    define_path("unused", None, "A file.", files.check_file, when=lambda: False)
    fresh_flags(["script", "--used=gs://bucket/x", "--unused=absent"])
    check_paths(fresh_flags)
    fresh_flags(["script", "--used=absent"])
    with pytest.raises(AlbertError, match=r"^--used: The file absent does not exist\.$"):
        check_paths(fresh_flags)


def test_the_item_of_a_list_that_is_missing_is_named(home, fresh_flags):
    define_paths("records", None, "Records.", check_records)
    for name in ("a-1", ".hidden"):
        Path(name).touch()
    fresh_flags(["script", "--records=a-*, gs://b/c,.h*"])
    check_paths(fresh_flags)
    for items, missing in (("a-1,b-*", "b-[*]"), ("no/*,a-1", "no/[*]"), ("a-1,c", "c")):
        fresh_flags(["script", f"--records={items}"])
        with pytest.raises(AlbertError, match=f"--records: No record file matches '{missing}'"):
            check_paths(fresh_flags)
