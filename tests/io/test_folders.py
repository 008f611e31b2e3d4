# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders that appear only when complete, what they may replace, and scratch folders."""

from __future__ import annotations

import os

import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files, folders, removal


def make_export(path, *names, **options):
    with folders.new_folder(str(path), **options) as folder:
        for name in names:
            files.write_text(f"{folder}/{name}", "new")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_appears_when_it_is_complete_or_not_at_all(tmp_path, overwrite):
    path = tmp_path / "export"
    if overwrite:
        make_export(path, "model")
        (path / "model").write_text("old")

    def content():
        return (path / "model").read_text() if path.exists() else None

    before = content()
    assert before == ("old" if overwrite else None)
    with (
        pytest.raises(AlbertError, match="stop"),
        folders.new_folder(str(path), overwrite) as folder,
    ):
        files.write_text(f"{folder}/model", "new")
        assert content() == before
        raise AlbertError("stop")
    assert content() == before
    make_export(path, "model", overwrite=overwrite)
    assert content() == "new"
    assert os.listdir(tmp_path) == ["export"]


def test_leftovers_of_a_killed_export_do_no_harm(tmp_path):
    (tmp_path / "export.tmp-0a1b2c3d/variables").mkdir(parents=True)
    make_export(tmp_path / "export", "a")
    assert (tmp_path / "export/a").read_text() == "new"
    with pytest.raises(AlbertError, match="already exists"):
        make_export(tmp_path)


def everything_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_is_replaced_with_everything_that_was_written_there(tmp_path):
    export = tmp_path / "export"
    make_export(export, "model", "assets/vocabulary")
    with pytest.raises(AlbertError, match="export already exists"):
        make_export(export, "model")
    (tmp_path / "link").symlink_to(export)
    make_export(tmp_path / "link", "model", "assets/other", overwrite=True)
    assert everything_below(export) == [folders.WRITTEN_FILES, "assets", "assets/other", "model"]
    assert sorted(os.listdir(tmp_path)) == ["export", "link"]


@pytest.mark.parametrize(
    "add",
    [
        lambda export: (export / "my_notes.txt").touch(),
        lambda export: (export / "assets/my_notes.txt").touch(),
        lambda export: (export / "assets/.hidden.lock").touch(),
        lambda export: (export / "assets/mine").mkdir(),
        lambda export: (export / "assets/linked").symlink_to(export.parent),
        lambda export: (export / folders.WRITTEN_FILES).unlink(),
    ],
)
def test_a_folder_with_anything_else_at_any_depth_is_not_replaced(tmp_path, add):
    export = tmp_path / "export"
    make_export(export, "model", "assets/vocabulary")
    add(export)
    before = everything_below(export)
    refused = pytest.raises(AlbertError, match="holds what this program has not written there")
    with refused:
        folders.check_new_folder(str(export), overwrite=True)
    with refused:
        make_export(export, "model", "assets/vocabulary", overwrite=True)
    assert everything_below(export) == before
    assert os.listdir(tmp_path) == ["export"]


def test_a_file_that_comes_while_the_new_folder_is_written_is_kept(tmp_path):
    export = tmp_path / "export"
    make_export(export, "model")
    with pytest.raises(AlbertError, match="such as mine"), folders.new_folder(str(export), True):
        (export / "mine").touch()
    assert everything_below(export) == [folders.WRITTEN_FILES, "mine", "model"]
    assert os.listdir(tmp_path) == ["export"]


def test_an_old_folder_stays_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    path = tmp_path / "export"
    make_export(path, "model")
    (path / "model").write_text("old")
    rename = tf.io.gfile.rename

    def fail(source, target, overwrite):
        if target == str(path) and (tmp_path / source / "model").read_text() == "new":
            raise KeyboardInterrupt
        rename(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        make_export(path, "model", overwrite=True)
    assert os.listdir(tmp_path) == ["export"] and (path / "model").read_text() == "old"


def test_a_new_folder_stays_if_the_old_one_cannot_be_deleted(tmp_path, monkeypatch):
    path = tmp_path / "export"
    make_export(path, "model")
    (path / "model").write_text("old")
    with pytest.raises(OSError, match="busy"), monkeypatch.context() as patch:
        patch.setattr(removal, "remove_temporary", raise_busy)
        make_export(path, "model", overwrite=True)
    assert (path / "model").read_text() == "new"


def raise_busy(path):
    if ".former." in path:
        raise OSError("busy")


def test_a_folder_is_replaced_where_folders_are_only_prefixes_of_names():
    path = "ram://overwritten/export"
    make_export(path, "model", "old/vocabulary")
    with pytest.raises(AlbertError, match="export already exists"):
        make_export(path, "model")
    make_export(path, "model", "old/other", overwrite=True)
    names = [folders.WRITTEN_FILES, "model", "old/other"]
    assert folders.names_below(path) == names
    assert folders.names_below("ram://overwritten") == [f"export/{name}" for name in names]
    tf.io.gfile.rmtree("ram://overwritten")


def test_a_folder_that_contains_the_input_is_not_replaced(tmp_path, monkeypatch):
    make_export(tmp_path / "model", "model")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "model")
    for target, source in (("model", "link"), ("link", "model"), ("model", "model/model")):
        with pytest.raises(AlbertError, match="model contains the input"):
            make_export(target, "model", overwrite=True, source=source)
    with pytest.raises(AlbertError, match="contains the input"):
        make_export(tmp_path, "model", overwrite=True, source="model")
    make_export(tmp_path / "model/export", "model", source="model")


def test_locks_do_not_count_as_files_of_a_folder(tmp_path):
    (tmp_path / "from").mkdir()
    for name in (".lock", "a.txt", "poetry.lock"):
        (tmp_path / "from" / name).touch()
    assert folders.names_below(f"{tmp_path}/from") == ["a.txt", "poetry.lock"]
    folders.copy_folder(f"{tmp_path}/from", f"{tmp_path}/to")
    assert sorted(os.listdir(tmp_path / "to")) == ["a.txt", "poetry.lock"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new/.lock").touch()  # Left by a run that was killed before it wrote anything.
    make_export(tmp_path / "new", "a.txt")
    assert sorted(os.listdir(tmp_path / "new")) == [folders.WRITTEN_FILES, "a.txt"]


def test_of_two_exports_to_one_folder_the_slower_one_fails(tmp_path):
    path = tmp_path / "export"
    refused = pytest.raises(AlbertError, match=f"^{path} already exists")
    with refused, folders.new_folder(f"{path}/"):
        make_export(path, "faster")
    assert os.listdir(tmp_path) == ["export"] and (path / "faster").exists()


def test_a_scratch_folder_exists_until_the_end_of_the_block(tmp_path):
    with folders.scratch_folder(str(tmp_path / "build/copies")) as folder:
        (tmp_path / "build" / os.path.basename(folder) / "copy").touch()
    assert os.listdir(tmp_path / "build") == []
    with pytest.raises(AlbertError, match="stop"), folders.scratch_folder(str(tmp_path / "x")):
        raise AlbertError("stop")
    # The one that a killed process leaves is recognised by its name.
    own, scratch = removal.own_temporaries, folders.scratch_folder
    with own("0" * 16), scratch(str(tmp_path / "x")), own("0" * 16, str(tmp_path)):
        assert os.listdir(tmp_path) == ["build"]
    with folders.scratch_folder("ram://scratch/copies") as folder:
        assert os.path.isdir(folder)  # On this machine, where reading is fast.
    assert not os.path.exists(folder)
