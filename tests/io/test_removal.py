# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What is deleted, and what is never deleted."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from albert_tf.io import files, removal
from albert_tf.io.folders import names_below

ROOT = Path(__file__).parents[2]
RUN, OTHER = removal.owner_id("run", 1), removal.owner_id("run", 2)
#: Modules that may call what deletes or cuts off: the rules themselves, and those that delete what
#: this process has just made: a lock, an unpacked archive, a temporary file.
ALLOWED = {"albert_tf/io/removal.py", "albert_tf/io/locks.py", "benchmarks/gpu_step/program.py"}


def test_only_temporary_names_with_the_id_of_the_run_are_deleted(tmp_path):
    with removal.own_temporaries(OTHER):
        (tmp_path / Path(removal.temporary_name("best.json")).name).touch()
    names = ["weights.tmp20250131", "a.json.tmp-0123abcd", f"notes.tmp-{RUN}"]
    for name in [*names, f"a.tmp-{RUN}-0123abcd.txt"]:
        (tmp_path / name).touch()
    kept = {*os.listdir(tmp_path)}
    with removal.own_temporaries(RUN):
        Path(removal.temporary_name(f"{tmp_path}/a.json")).touch()
        Path(removal.temporary_name(f"{tmp_path}/ckpt-3"), "variables").mkdir(parents=True)
    assert len(os.listdir(tmp_path)) == 7
    with removal.own_temporaries(RUN, str(tmp_path), str(tmp_path / "nowhere")):
        assert {*os.listdir(tmp_path)} == kept


def test_a_link_is_deleted_and_what_it_leads_to_is_not(tmp_path):
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep/file").touch()
    run = tmp_path / "run"
    run.mkdir()
    (run / f"best.tmp-{RUN}-0123abcd").symlink_to(precious)
    (run / f"ckpt.tmp-{RUN}-0123abcd").mkdir()
    (run / f"ckpt.tmp-{RUN}-0123abcd/linked").symlink_to(precious)
    with removal.own_temporaries(RUN, str(run)):
        assert os.listdir(run) == []
    assert (precious / "deep/file").exists()


def test_other_names_than_temporary_ones_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a temporary name"):
        removal.remove_temporary(str(tmp_path))
    assert tmp_path.exists()


def test_folders_are_not_deleted_among_files(tmp_path):
    (tmp_path / "ckpt-1.index").mkdir()
    (tmp_path / "ckpt-2.index").touch()
    removal.remove_files(str(tmp_path), ["ckpt-1.index", "ckpt-2.index", "ckpt-3.index"])
    assert os.listdir(tmp_path) == ["ckpt-1.index"]


@pytest.mark.parametrize("scheme", ["", "ram:/"])
def test_damaged_files_and_folders_get_a_free_name(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}"
    for _ in range(2):
        files.write_text(f"{folder}/best/best.json", "x")
        removal.set_aside(f"{folder}/best")
    files.write_text(f"{folder}/a", "x")
    assert removal.set_aside(f"{folder}/a") == f"{folder}/a.damaged"
    names = ["a.damaged", "best.damaged-2/best.json", "best.damaged/best.json"]
    assert names_below(folder) == names


def _deleting_calls(path):
    """Yields the calls of a module that delete, or cut off a file."""
    deleting = {"rmtree", "unlink", "rmdir", "removedirs", "truncate", "ftruncate"}
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, owner = node.func.attr, ast.unparse(node.func.value)
        # Lists and sets have a method `remove`, too.
        removes = name == "remove" and re.search(r"gfile|\bos\b|files", owner)
        if name in deleting or removes:
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_no_other_module_deletes_anything():
    folders = "albert_tf", "benchmarks", "demo", "examples", "scripts"
    paths = [*ROOT.glob("*.py"), *(path for f in folders for path in ROOT.glob(f"{f}/**/*.py"))]
    found = {str(path.relative_to(ROOT)): list(_deleting_calls(path)) for path in paths}
    assert {name for name, calls in found.items() if calls} == ALLOWED
