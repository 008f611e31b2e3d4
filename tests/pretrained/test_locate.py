# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.pretrained.locate: what a name means, and what takes precedence."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from albert_tf.errors import AlbertError
from albert_tf.export.model_folder import ModelFolder
from albert_tf.huggingface import hub
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.pretrained import archives, locate
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.load import open_source
from albert_tf.weights.pretrained_model import load_pretrained
from tests.support.builders import vocabulary
from tests.support.releases import write_release

GOLDEN = Path(__file__).parents[1] / "golden"


def archive(folder, name=""):
    """Returns a .tar.gz of a folder, whose files are in a folder `name`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as f:
        for path in sorted(folder.rglob("*")):
            f.add(path, os.path.join(name, path.relative_to(folder)), recursive=False)
    return buffer.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and an empty working folder."""
    monkeypatch.setenv("ALBERT_TF_CACHE", str(tmp_path / "cache"))
    for module in (locate, archives):
        monkeypatch.setattr(module, "WEB", "http://")  # The server's scheme.
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "cache"


@pytest.fixture
def released(server, cache, tmp_path, monkeypatch):
    """A small model that the server has as albert_base_v2 of the TF1 release."""
    folder = write_release(tmp_path / "release", "vocab.txt")
    server.files["/albert_models/albert_base_v2.tar.gz"] = archive(folder, "albert_base")
    monkeypatch.setattr(locate, "RELEASES_URL", f"{server.url}/albert_models/")
    return folder


@pytest.fixture
def downloaded(monkeypatch):
    """Replaces downloads from Hugging Face; returns what was asked for."""
    asked = []
    monkeypatch.setattr(hub, "snapshot", lambda *given: asked.append(given) or "/hf")
    return asked


def test_a_released_model_is_downloaded_once_and_loaded(released, server, cache, capsys):
    for _ in range(2):
        model = load_pretrained("albert_base_v2")
        assert len(model.load_report.matched) == 32
        assert model.tokenizer.vocab_size == 120
    (path,) = cache.rglob("*.tar.gz")
    assert len(server.requests) == 1
    digest = hashlib.sha256(server.files["/albert_models/albert_base_v2.tar.gz"]).hexdigest()
    assert f"bytes, SHA-256 {digest}. It is kept as {path}." in capsys.readouterr().err


def test_archives_of_one_name_from_two_places_are_two_files(server, cache, tmp_path):
    for place, word in (("a", "sun"), ("b", "rain")):
        pieces = vocabulary([word])
        folder = write_release(tmp_path / place, "vocab.txt", pieces)
        server.files[f"/{place}/model.tar.gz"] = archive(folder)
    tokenizers = [Tokenizer.from_file(f"{server.url}/{place}/model.tar.gz") for place in "ab"]
    assert [tokenizer.tokenize("sun rain") for tokenizer in tokenizers] == [
        ["sun", "[UNK]"],
        ["[UNK]", "rain"],
    ]


def test_an_address_may_pin_the_bytes(released, server, cache):
    with pytest.raises(AlbertError, match="not 00; do not use it"):
        load_pretrained(f"{server.url}/albert_models/albert_base_v2.tar.gz#sha256=00")


def test_without_a_network_the_error_names_the_file_to_put_there(cache, monkeypatch):
    monkeypatch.setattr(locate, "RELEASES_URL", "http://127.0.0.1:9/")
    monkeypatch.setattr(archives, "_PAUSE", 0.0)
    with pytest.raises(AlbertError, match=rf"copy it to {cache}/\w+-albert_large_zh\.tar\.gz\.$"):
        open_source("albert_large_zh")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://a.b/model.tar.gz", "changed on its way; give an https:// address"),
        ("kaggle://google/albert", r"is no address; give the model's, https://www\.kaggle\.com/"),
        ("s3://a/b", r"File system scheme 's3' not implemented .*; copy the files to this machine"),
        ("hdfs://a/b", "File system scheme 'hdfs' not implemented"),
        ("unknown://a/b.zip", "File system scheme 'unknown' not implemented"),
    ],
)
def test_an_address_that_cannot_be_opened_is_one_sentence(address, message):
    for call in (load_pretrained, Tokenizer.from_file):
        with pytest.raises(AlbertError, match=message):
            call(address)


@pytest.mark.parametrize("name", ["albert_base_v2", "albert/base", "albert_tiny_books"])
def test_an_existing_file_or_folder_takes_precedence(cache, downloaded, name):
    Path(name).mkdir(parents=True)
    assert locate.locate(name) == name
    shutil.rmtree(name)
    Path(f"{name}.index").write_text("")
    assert locate.locate(name) == name
    assert downloaded == []


@pytest.mark.parametrize(
    "name", ["albert/albert-base-v2", "voidful/albert_chinese_base", "a/b.c-d@v2", "a/b@refs/pr/1"]
)
def test_an_id_of_hugging_face_is_recognised_by_its_form(cache, downloaded, name):
    assert locate.locate(name) == locate.locate(f"hf://{name}", weights=False) == "/hf"
    assert downloaded == [(name, True), (name, False)]


@pytest.mark.parametrize(
    "path",
    [
        "runs/base",
        "a/b/c",
        "/a/b",
        "./a/b",
        "~a/b",
        "a/vocab.txt",
        "a/x.model",
        "a/model.ckpt-best",
    ],
)
def test_a_path_is_no_id(cache, downloaded, path):
    Path("runs").mkdir()
    assert locate.locate(path) == path
    with pytest.raises(AlbertError, match=rf"no checkpoint at {path}, which does not exist; give"):
        load_pretrained(path)
    with pytest.raises(AlbertError, match=rf"The vocabulary {path} does not exist"):
        Tokenizer.from_file(path)
    assert downloaded == []


def test_a_preset_without_released_weights_is_explained(cache):
    with pytest.raises(AlbertError, match="albert_tiny is a preset of `albert_config_file`, which"):
        load_pretrained("albert_tiny")


def test_a_handle_of_tf_hub_is_resolved_by_its_library(server, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "tfhub"))
    module = tmp_path / "module"
    assets = write_release(module / "assets", "vocab.txt")
    (module / "variables").mkdir()
    for ending in ("index", "data-00000-of-00001"):
        (assets / f"model.ckpt-best.{ending}").rename(module / f"variables/variables.{ending}")
    (module / "saved_model.pb").write_bytes(b"graph")
    server.files["/albert_tiny/1"] = archive(module)
    handle = f"{server.url}/albert_tiny/1"
    model = load_pretrained(handle)
    assert len(model.load_report.matched) == 32
    assert Tokenizer.from_file(handle).spec == model.tokenizer.spec
    assert server.paths() == ["/albert_tiny/1?tf-hub-format=compressed"]


def test_a_folder_without_a_vocabulary_is_one_sentence(tmp_path):
    with pytest.raises(
        AlbertError, match=rf"{tmp_path} has no vocabulary \(tokenizer.json, \*.mod"
    ):
        Tokenizer.from_file(str(tmp_path))


def test_an_export_of_a_name_is_described_by_it(released, capsys):
    folder = ModelFolder("albert_base_v2")
    config, tokenizer = folder.config_and_tokenizer()
    sections = folder.sections(tokenizer, AlbertPretrainer(config))
    assert sections["Training"].startswith("The weights are those of `albert_base_v2`. How")
    config, tokenizer = ModelFolder(str(released)).config_and_tokenizer()
    sections = ModelFolder(str(released)).sections(tokenizer, AlbertPretrainer(config))
    assert sections["Training"].startswith("The weights are those of `model.ckpt-best`.")
