# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Paths that the content of files names stay in their folder; folders appear when complete."""

from __future__ import annotations

import json
import os

import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.record_files import record_files
from albert_tf.errors import AlbertError
from albert_tf.io import files, locks
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint_files import find_checkpoint
from albert_tf.weights.model_folders import model_folder
from data_prep.record_files import find_records

OUTSIDE = [
    "/etc/passwd",
    "../outside",
    "a/../../outside",
    "below/file",
    "..",
    ".",
    "",
    "a\0b",
    256 * "a",
]
ANY_OUTSIDE = pytest.mark.parametrize("name", [*OUTSIDE, "..\\outside", None, 3])
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]


@ANY_OUTSIDE
def test_only_plain_names_are_joined(name):
    with pytest.raises(AlbertError, match=r"list\.json names .* not the name of a file beside it"):
        files.join_named("folder", name, "list.json")
    assert files.join_named("folder", "..a b.txt", "list.json") == "folder/..a b.txt"


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_manifest_names_no_shard_elsewhere(tmp_path, name):
    folder = tmp_path / "records"
    features = records.pretraining_features(4, 2)
    (tmp_path / "outside").write_bytes(b"")
    Manifest("pretraining", features, [records.ShardInfo(name, 0, 0, "")], {}, {}, {}).save(
        str(folder)
    )
    for read in (Manifest.load, record_files, lambda path: find_records(path, None)):
        with pytest.raises(AlbertError, match="not the name of a file beside it"):
            read(str(folder))


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_tokenizer_names_no_vocabulary_elsewhere(tmp_path, name):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for place in (tmp_path / "outside", folder / "vocab.txt"):
        place.write_text("\n".join(PIECES))
    spec = Tokenizer.from_file(str(folder / "vocab.txt")).spec.to_dict()
    (folder / "tokenizer.json").write_text(json.dumps({**spec, "model_file": name}))
    with pytest.raises(AlbertError, match="not the name of a file beside it"):
        Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("name", OUTSIDE)
def test_records_of_runs_name_nothing_elsewhere(tmp_path, name):
    run = tmp_path / "run"
    (run / "best").mkdir(parents=True)
    best = {"step": 1, "metric": "accuracy", "value": 0.5, "checkpoint": name}
    (run / "best/best.json").write_text(json.dumps(best))
    with pytest.raises(AlbertError, match="not the name of a file beside it"):
        find_checkpoint(str(run))
    (run / "seeds.json").write_text(json.dumps({"best": name}))
    with pytest.raises(AlbertError, match="not the name of a file beside it"):
        model_folder(str(run))


@pytest.mark.parametrize("prefix", ["{outside}/", "../outside/", ""])
def test_the_list_of_checkpoints_names_none_in_another_folder(tmp_path, prefix):
    run, outside = tmp_path / "run", tmp_path / "outside"
    for folder in (run, outside):
        tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(folder / "ckpt-1"))
        tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(folder / "ckpt-2"))
    named = prefix.format(outside=outside) + "ckpt-1"
    (run / "checkpoint").write_text(f'model_checkpoint_path: "{named}"\n')
    # A folder that was moved has the former absolute names in its list.
    assert find_checkpoint(str(run)) == os.path.join(str(run), "ckpt-1")


def test_an_article_or_configuration_that_is_no_object_is_refused(tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(AlbertError, match=r"The article .*list\.json is not a JSON object"):
        files.read_object(str(tmp_path / "list.json"), "article")


def test_what_a_killed_export_left_is_named_and_in_nobodys_way(tmp_path, capsys):
    left = tmp_path / "export.tmp-0a1b2c3d"
    (left / "variables").mkdir(parents=True)
    with files.new_folder(str(tmp_path / "export")) as folder:
        files.write_text(f"{folder}/a", "whole")
    assert (tmp_path / "export/a").read_text() == "whole"
    assert f"{left} is of an attempt that was killed" in capsys.readouterr().out
    with pytest.raises(AlbertError, match="is there already"), files.new_folder(str(left.parent)):
        pass


def test_an_output_among_the_inputs_is_refused_under_any_name(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("kept")
    (tmp_path / "symbolic").symlink_to(path)
    os.link(path, tmp_path / "hard")
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = ["text.txt", "./text.txt", "symbolic", "hard", "folder/text.txt", "folder/hard"]
    for name in names:
        for overwrite in (False, True):
            with pytest.raises(AlbertError, match=f"^{name} is read as well"):
                files.check_output(name, ["other", str(path)], overwrite)
    with pytest.raises(AlbertError, match="is read as well"):
        files.check_output("ram://a//b/../c", ["ram://a/c"], overwrite=True)
    files.check_output("ram://a/c", ["ram://b/c", "a/c"])
    files.check_output("new", [str(path)])


def test_an_output_that_is_there_needs_to_be_overwritten_by_name(tmp_path):
    (tmp_path / "there").touch()
    with pytest.raises(AlbertError, match=r"/there is there already; .* set --overwrite"):
        files.check_output(f"{tmp_path}/there")
    files.check_output(f"{tmp_path}/there", overwrite=True)
    with pytest.raises(AlbertError, match="is a folder; give the path of a file"):
        files.check_output(str(tmp_path), overwrite=True)


def make_export(path, *names, **options):
    with files.new_folder(str(path), **options) as folder:
        for name in names:
            files.write_text(f"{folder}/{name}", "new")


def test_a_folder_is_overwritten_only_if_all_in_it_is_replaced(tmp_path):
    export = tmp_path / "export"
    make_export(export, "model", "assets/vocabulary")
    with pytest.raises(AlbertError, match="export is there already"):
        make_export(export, "model")
    (export / "model").write_text("old")
    with pytest.raises(AlbertError, match="holds more than is to be overwritten, assets; delete"):
        make_export(export, "model", overwrite=True)
    assert (export / "model").read_text() == "old"
    (tmp_path / "link").symlink_to(export)
    make_export(tmp_path / "link", "model", "assets/other", overwrite=True)
    assert files.names_below(str(export)) == ["assets/other", "model"]
    assert (export / "model").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["export", "link"]


def test_a_folder_is_overwritten_where_folders_are_beginnings_of_names(monkeypatch):
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.0)
    path = "ram://overwritten/export"
    make_export(path, "model", "old/vocabulary")
    with pytest.raises(AlbertError, match="export is there already"):
        make_export(path, "model")
    make_export(path, "model", "old/other", overwrite=True)
    assert files.names_below(path) == ["model", "old/other"]
    assert files.names_below("ram://overwritten") == ["export/model", "export/old/other"]
    tf.io.gfile.rmtree("ram://overwritten")


def test_a_folder_that_holds_what_is_read_is_not_overwritten(tmp_path, monkeypatch):
    make_export(tmp_path / "model", "model")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "model")
    for target, source in (("model", "link"), ("link", "model"), ("model", "model/model")):
        with pytest.raises(AlbertError, match="model holds what is read"):
            make_export(target, "model", overwrite=True, source=source)
    with pytest.raises(AlbertError, match="holds what is read"):
        make_export(tmp_path, "model", overwrite=True, source="model")
    make_export(tmp_path / "model/export", "model", source="model")


def test_locks_are_no_files_of_a_folder(tmp_path):
    (tmp_path / "from").mkdir()
    for name in (".lock", ".a.txt.lock", "a.txt", "poetry.lock"):
        (tmp_path / "from" / name).touch()
    assert files.names_below(f"{tmp_path}/from") == ["a.txt", "poetry.lock"]
    files.copy_folder(f"{tmp_path}/from", f"{tmp_path}/to")
    assert sorted(os.listdir(tmp_path / "to")) == ["a.txt", "poetry.lock"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new/.lock").touch()  # Of a run that was killed before it wrote anything.
    with files.new_folder(f"{tmp_path}/new") as folder:
        files.write_text(f"{folder}/a.txt", "")
    assert os.listdir(tmp_path / "new") == ["a.txt"]


def test_a_folder_that_another_process_makes_is_refused(tmp_path, hold):
    path = tmp_path / "export"
    refused = pytest.raises(AlbertError, match=f"^{path} is in use: process ")
    with hold(path, file=True), refused, files.new_folder(f"{path}/"):
        pass
    assert os.listdir(tmp_path) == [".export.lock"]  # The killed process has left it.
    with files.new_folder(str(path)):
        pass
    assert os.listdir(tmp_path) == ["export"]


def test_temporary_files_and_folders_of_killed_writers_are_removed_and_no_others(tmp_path):
    kept = {"a.json", "a.tmp-b", "b.tmp-0123abcd.json", "c"}
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / "a.json.tmp-0123abcd").touch()
    (tmp_path / "export.tmp-0123abcd/variables").mkdir(parents=True)
    files.remove_temporary(str(tmp_path))
    files.remove_temporary(str(tmp_path / "nowhere"))
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_scratch_folder_lasts_as_long_as_it_is_needed(tmp_path):
    with files.scratch_folder(str(tmp_path / "build/copies")) as folder:
        (tmp_path / "build" / os.path.basename(folder) / "copy").touch()
    assert os.listdir(tmp_path / "build") == []
    with pytest.raises(AlbertError, match="stop"), files.scratch_folder(str(tmp_path / "x")):
        raise AlbertError("stop")
    # A killed process leaves one, which is found by its name.
    with files.scratch_folder(str(tmp_path / "x")):
        files.remove_temporary(str(tmp_path))
        assert os.listdir(tmp_path) == ["build"]
    with files.scratch_folder("ram://scratch/copies") as folder:
        assert os.path.isdir(folder)  # On this machine, where copies are read fast.
    assert not os.path.exists(folder)
