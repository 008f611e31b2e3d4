# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Files appear when complete, stay in their folder, and never replace inputs."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest, find_shards
from albert_tf.data_prep.verify_records import find_records
from albert_tf.errors import AlbertError
from albert_tf.huggingface.weights import read_safetensors
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.pretrained.archives import unpack
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.run_folder import find_checkpoint, model_folder
from tests.support.builders import write_tokenizer, write_vocabulary

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


@pytest.mark.parametrize("name", [*OUTSIDE, "..\\outside", None, 3])
def test_only_plain_names_are_joined(name):
    with pytest.raises(AlbertError, match=r"list\.json names .* not the name of a file beside it"):
        files.join_named("folder", name, "list.json")
    assert files.join_named("folder", "..a b.txt", "list.json") == "folder/..a b.txt"


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_file_of_a_folder_names_another_one_elsewhere(tmp_path, name):
    folder = tmp_path / "folder"
    (folder / "best").mkdir(parents=True)
    os.rename(write_vocabulary(tmp_path, ["a"]), tmp_path / "outside")
    tokenizer = {**write_tokenizer(folder, ["a"]).spec.to_dict(), "model_file": name}
    best = {"step": 1, "metric": "accuracy", "value": 0.5, "checkpoint": name}
    for file, content, read in (
        ("tokenizer.json", tokenizer, lambda path: Tokenizer.from_file(f"{path}/tokenizer.json")),
        ("best/best.json", best, find_checkpoint),
        ("seeds.json", {"best": name}, model_folder),
    ):
        (folder / file).write_text(json.dumps(content))
        with pytest.raises(AlbertError, match=f"{file} .* not the name of a file beside it"):
            read(str(folder))
    features, shard = records.pretraining_features(4, 2), records.ShardInfo(name, "", [])
    Manifest("pretraining", features, [shard], {}, {}, {}).save(str(folder))
    for read in (Manifest.load, find_shards, find_records):
        with pytest.raises(AlbertError, match="not the name of a file beside it"):
            read(str(folder))


def test_an_output_that_is_an_input_is_refused_under_any_name(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("kept")
    (tmp_path / "symbolic").symlink_to(path)
    os.link(path, tmp_path / "hard")
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = ["text.txt", "./text.txt", "symbolic", "hard", "folder/text.txt", "folder/hard"]
    for name in names:
        for overwrite in (False, True):
            with pytest.raises(AlbertError, match=f"^{name} is also an input"):
                files.check_output(name, ["other", str(path)], overwrite)
    with pytest.raises(AlbertError, match="is also an input"):
        files.check_output("ram://a//b/../c", ["ram://a/c"], overwrite=True)
    files.check_output("ram://a/c", ["ram://b/c", "a/c"])
    files.check_output("new", [str(path)])


def test_an_existing_output_is_refused_unless_it_may_be_overwritten(tmp_path):
    (tmp_path / "old").touch()
    with pytest.raises(AlbertError, match=r"/old already exists; .* set `overwrite`"):
        files.check_output(f"{tmp_path}/old")
    files.check_output(f"{tmp_path}/old", overwrite=True)
    with pytest.raises(AlbertError, match="is a folder; give the path of a file"):
        files.check_output(str(tmp_path), overwrite=True)


def test_paths_that_are_not_utf_8_are_refused():
    with pytest.raises(AlbertError, match=r"^The path of the model is not UTF-8 \('run\\udcff'\)"):
        files.path_of("run\udcff", "model")


def test_names_beside_a_glob_that_are_not_utf_8_are_one_sentence(tmp_path):
    (tmp_path / "a\udcff.txt").touch()
    (tmp_path / "b.txt").touch()
    with pytest.raises(AlbertError, match=r"matches is not UTF-8; rename that file\.$"):
        files.expand_globs(f"{tmp_path}/*.txt")


def test_of_two_processes_that_write_one_file_the_slower_one_fails(tmp_path):
    path = tmp_path / "out.txt"
    for overwrite in (False, True):
        refused = contextlib.nullcontext()
        if not overwrite:
            refused = pytest.raises(AlbertError, match=f"{path} already exists")
        with refused, files.new_file(str(path), (), overwrite) as temporary:
            Path(temporary).write_text("slower")
            path.write_text("faster")
        assert path.read_text() == ("slower" if overwrite else "faster")
        assert os.listdir(tmp_path) == ["out.txt"]


def test_halves_of_surrogate_pairs_are_written_as_replacement_characters(tmp_path):
    files.write_json(str(tmp_path / "a.json"), {"text": "so funny \ud83d"})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"text": "so funny \ufffd"}


def test_a_file_whose_name_is_a_glob_stands_for_itself(tmp_path):
    for name in ("corpus [2].txt", "corpus 2.txt"):
        (tmp_path / name).touch()
    for name in ("corpus [2].txt", "corpus 2.txt", "corpus [0-9].txt"):
        found = files.expand_globs(str(tmp_path / name))
        assert found == [str(tmp_path / name.replace("[0-9]", "2"))]


@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
def test_pipes_and_devices_are_no_input(tmp_path, kind):
    path = tmp_path / "text.txt"
    if kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe" if kind == "link" else path)
        if kind == "link":
            path.symlink_to(tmp_path / "pipe")
    (tmp_path / "regular.txt").touch()
    for read in (
        files.check_file,
        files.expand_globs,
        files.read_bytes,
        find_shards,
        read_safetensors,
        lambda path: list(read_lines(path)),
        unpack,
        lambda path: files.expand_globs(f"{tmp_path}/*.txt"),
    ):
        with pytest.raises(AlbertError, match=f"{path.with_suffix('')}.* is a pipe or a device; "):
            read(str(path))
    path.unlink()
    path.symlink_to(tmp_path / "regular.txt")
    files.check_file(str(path))


def test_a_file_appears_when_it_is_complete_or_not_at_all(tmp_path):
    path = tmp_path / "new/file"
    with files.atomic_path(str(path)) as temporary:
        Path(temporary).write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    with pytest.raises(AlbertError, match="stop"), files.atomic_path(str(path)) as temporary:
        Path(temporary).write_text("part")
        raise AlbertError("stop")
    assert path.read_text() == "whole"
    assert os.listdir(path.parent) == ["file"]
