# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import os
import shutil
import stat
import tarfile
import time
import zipfile
from email.utils import formatdate
from pathlib import Path

import pytest

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.pretrained import archives
from albert_tf.pretrained.archives import download
from tests.support.releases import CHINESE_PIECES, write_release, write_zip


def member(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = 4 if kind == tarfile.REGTYPE else 0
    return info


def write(path, *members):
    with tarfile.open(path, "w:gz") as f:
        for info in members:
            f.addfile(info, io.BytesIO(b"data") if info.size else None)
    return str(path)


def zip_member(name, mode=0, data=b"data"):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info, data


def zip_of(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as f:
        for info, data in members:
            f.writestr(info, data, zipfile.ZIP_DEFLATED)
    return str(path)


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("model/../../outside"),
        member("model/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("model/hard", tarfile.LNKTYPE, "../outside"),
        member("model/pipe", tarfile.FIFOTYPE),
        member("model/device", tarfile.CHRTYPE),
    ],
)
def test_a_malicious_member_is_refused_and_nothing_is_left(bad, tmp_path, monkeypatch):
    path = write(tmp_path / "bad.tar.gz", member("model/file"), bad)
    folder = tmp_path / "tmp" / "deep"
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    os.makedirs(folder)
    with pytest.raises(AlbertError, match=r"bad\.tar\.gz is damaged or unsafe \('"):
        albert_tf.load_pretrained(path)
    assert [*(tmp_path / "tmp").rglob("*")] == [folder]


def test_nothing_is_written_beside_the_folder_and_no_link_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp" / "deep"))
    os.makedirs(tmp_path / "tmp" / "deep")
    link = zip_member("link", stat.S_IFLNK | 0o777, b"/etc/passwd")
    names = ["../outside", "../../outside", "/outside", "x"]
    zipped = archives.unpack(zip_of(tmp_path / "x.zip", *map(zip_member, names), link))
    tarred = archives.unpack(write(tmp_path / "x.tar.gz", member("/outside"), member("x")))
    assert {*os.listdir(zipped)} == {"outside", "x", "link"} and {*os.listdir(tarred)} == {
        "outside", "x"
    }  # fmt: skip
    assert not any(os.path.islink(path) for path in Path(zipped).iterdir())
    assert not (tmp_path / "tmp" / "outside").exists() and not os.path.exists("/outside")


def test_a_damaged_archive_is_refused_in_one_sentence(tf1_archive, tmp_path):
    whole = zip_of(tmp_path / "whole.zip", zip_member("model/file", data=os.urandom(999)))
    data, tarred = bytearray(Path(whole).read_bytes()), tf1_archive.read_bytes()
    encrypted, flipped = data.copy(), data.copy()
    encrypted[6] = encrypted[data.index(b"PK\1\2") + 8] = 1
    flipped[100] ^= 1
    cases = [("x.zip", x) for x in (data[: len(data) // 2], b"hello", b"", encrypted, flipped)]
    cases += [("x.tar.gz", x) for x in (tarred[: len(tarred) // 2], b"hello", b"")]
    for name, damaged in cases:
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(AlbertError, match="is damaged"):
            archives.unpack(str(tmp_path / name))
    assert os.listdir(archives.unpack(whole)) == ["file"]
    with pytest.raises(AlbertError, match="does not exist"):
        archives.unpack(str(tmp_path / "none.tar.gz"))


def test_an_archive_is_unpacked_once_and_another_of_its_name_again(tf1_archive, tmp_path):
    path = str(shutil.copy(tf1_archive, tmp_path / "own.tar.gz"))
    folder = archives.unpack(path)
    assert os.path.basename(folder) == "albert_tiny"
    assert archives.unpack(path) == folder
    os.utime(path, (0, 0))
    assert archives.unpack(path) != folder


def test_a_small_archive_that_holds_much_is_refused_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MAX_SMALL_BYTES", 1 << 16)
    zeros = bytes(1 << 20)
    zipped = zip_of(tmp_path / "bomb.zip", zip_member("a"), zip_member("b", data=zeros))
    (tmp_path / "zeros").write_bytes(zeros)
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as f:
        f.add(tmp_path / "zeros", "zeros")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for path in (zipped, str(tmp_path / "bomb.tar.gz")):
        with pytest.raises(AlbertError, match=r"bomb\.\S+ .* \(it holds more than 6.1e-05 GiB\)"):
            archives.unpack(path)
    assert not [*(tmp_path / "tmp").iterdir()]
    # Trained weights hardly shrink.
    random = zip_of(tmp_path / "random.zip", zip_member("a", data=os.urandom(1 << 17)))
    assert os.listdir(archives.unpack(random)) == ["a"]


def test_errors_of_a_model_name_its_archive(tmp_path):
    empty = zip_of(tmp_path / "empty.zip", zip_member("model/checkpoint"))
    with pytest.raises(AlbertError, match=r"/empty\.zip/model[;/ ]"):
        albert_tf.load_pretrained(empty)


#: The files of archives with Chinese models, as their users list them.
CHINESE_RELEASES = {
    "albert_base_zh.tar.gz": (
        "albert_base/", "model.ckpt-best", "albert_config.json", "vocab_chinese.txt"
    ),
    "albert_tiny_zh_google.zip": (
        "", "albert_model.ckpt", "albert_config_tiny_g.json", "vocab.txt"
    ),
    "albert_small_zh_google.zip": (
        "small/", "albert_model.ckpt", "albert_config_small_google.json", "vocab.txt"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHINESE_RELEASES)
def test_the_archives_of_chinese_releases_are_loaded_as_they_are(name, tmp_path):
    folder, checkpoint, config, vocabulary = CHINESE_RELEASES[name]
    source = write_release(tmp_path / "release", vocabulary, CHINESE_PIECES)
    for path in list(source.glob("model.ckpt-best*")):
        path.rename(source / path.name.replace("model.ckpt-best", checkpoint))
    (source / "albert_config.json").rename(source / config)
    if name.endswith(".zip"):
        # TensorFlow's own list names the checkpoint of the training.
        (source / "checkpoint").write_text('model_checkpoint_path: "/data/model.ckpt-250000"\n')
        path = write_zip(tmp_path / name, source, folder)
    else:
        path = tmp_path / name
        with tarfile.open(path, "w:gz") as f:
            f.add(source, folder)
    model = albert_tf.load_pretrained(str(path))
    assert len(model.load_report.matched) == 32
    assert model.tokenizer.tokenize("中国ABC。") == ["中", "国", "ab", "##c", "。"]


@pytest.fixture
def data(tmp_path):
    """An archive of 3 MB."""
    return Path(zip_of(tmp_path / "x.zip", zip_member("x", data=os.urandom(3 << 20)))).read_bytes()


@pytest.fixture
def url(server, data, monkeypatch):
    monkeypatch.setattr(archives, "_PAUSE", 0.0)
    monkeypatch.setattr(archives, "WEB", "http://")  # The server's scheme.
    server.files["/model.tar.gz"] = data
    return f"{server.url}/model.tar.gz"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "model.tar.gz"


def left(path):
    """Returns the names beside a file, of which there may be none."""
    return os.listdir(path.parent) if path.parent.exists() else []


def test_an_archive_is_downloaded_once_with_its_size_and_checksum(server, url, data, path, capsys):
    assert download(url, str(path)) == str(path)
    assert path.read_bytes() == data and left(path) == [path.name]
    printed = capsys.readouterr()
    digest = hashlib.sha256(data).hexdigest()
    assert f"{len(data):,} bytes, SHA-256 {digest}. It is kept as {path}." in printed.err
    assert printed.out == ""  # Some scripts print JSON there.
    download(url, str(path), digest.upper())
    assert len(server.requests) == 1
    with pytest.raises(AlbertError, match=rf"{path} has the SHA-256 {digest}, not 00; do not use"):
        download(url, str(path), "00")
    path.unlink()
    with pytest.raises(AlbertError, match=rf"{url} has the SHA-256 {digest}, not 00; do not use"):
        download(url, str(path), "00")
    assert left(path) == []


def test_a_file_comes_whole_after_broken_connections_and_busy_answers(server, url, data, path):
    server.cut, server.errors = [1_000_000, 0], [503, 429]
    download(url, str(path))
    assert path.read_bytes() == data and left(path) == [path.name]
    assert len(server.requests) == 5


def test_a_server_that_always_breaks_off_is_given_up(server, url, path):
    server.cut = [1000] * 8
    with pytest.raises(AlbertError) as caught:
        download(url, str(path))
    message = str(caught.value)
    assert "IncompleteRead(1000 bytes read, 314" in message
    assert message.endswith(f"or download the file elsewhere and copy it to {path}.")
    assert len(server.requests) == archives._ATTEMPTS and left(path) == []


@pytest.mark.parametrize(("after", "slept"), [("7", 7), ("a date", 60), ("3600", 120)])
def test_a_busy_server_says_when_to_ask_again(server, url, path, monkeypatch, after, slept):
    pauses = []
    monkeypatch.setattr("time.sleep", pauses.append)
    date = formatdate(time.time() + 60, usegmt=True)
    server.errors, server.retry_after = [429], date if after == "a date" else after
    download(url, str(path))
    assert pauses == [pytest.approx(slept, abs=3)] and len(server.requests) == 2


def answer(body=b"", *headers, status="200 OK"):
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


HTML = b"<html>Log in</html>"
TAR = gzip.compress(member("x").tobuf() + bytes(10240), mtime=0)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (answer(HTML, "Content-Type: text/html"), "no intact archive, but 19 bytes of text/html"),
        (answer(HTML, "Content-Length: many"), "no intact archive, but 19 bytes of an unknown"),
        (answer(bytes(10240)), r"no intact archive, .* \(it holds nothing\); open it in a browser"),
        (answer(TAR[:30]), "no intact archive, but 30 bytes"),
        (answer(status="204 No Content"), "no intact archive, but 0 bytes"),
        (answer(HTML, status="206 Partial"), "no intact archive, but 19 bytes"),
        (answer(status="404 Not Found"), r"\(404 Client Error: Not Found for url: http:"),
        (answer(b"", "Location: http://[a", status="302 Found"), r"\(Invalid IPv6 URL\); check"),
        (answer(b"", "Location: ftp://a/b", status="302 Found"), r"adapters .* for 'ftp://a/b'\)"),
        (answer(b"", "Location: /model.tar.gz", status="302 F"), "Exceeded 30 redirects"),
        (b"hello", r"BadStatusLine\('hello'\)\)\); check the address"),
    ],
    ids=itertools.count(),  # All processes of a test run must have the same names.
)  # fmt: skip
def test_what_is_no_archive_never_gets_the_name(server, url, path, raw, message):
    server.raw["/model.tar.gz"] = raw
    with pytest.raises(AlbertError, match=message):
        download(url, str(path))
    assert left(path) == []
    server.raw.clear()
    download(url, str(path))


def test_a_body_that_comes_too_slowly_is_given_up(server, url, path, monkeypatch):
    monkeypatch.setattr(archives, "_TIMEOUT", 1.0)
    monkeypatch.setattr(archives, "_BLOCK", 4)
    monkeypatch.setattr(archives, "_ATTEMPTS", 1)
    server.raw["/model.tar.gz"], server.pause = answer(HTML * 99), 0.01
    with pytest.raises(AlbertError, match="it sends fewer than 1,000 bytes per second"):
        download(url, str(path))


@pytest.mark.parametrize(
    "address", ["http://", "http://a b/x.zip", "http://a:b/x.zip", "http://[a"]
)
def test_a_malformed_address_is_one_sentence(address, path):
    with pytest.raises(AlbertError, match=r"cannot be downloaded \(.*\); check the address"):
        download(address, str(path))


def test_a_folder_that_cannot_be_made_is_one_sentence(url, path):
    path.parent.write_text("mine")
    with pytest.raises(AlbertError, match=r"cache cannot be a folder, because .* is not a folder"):
        download(url, str(path))
