# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
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


NAMES = ["../outside", "model/../../outside", "/outside"]


@pytest.mark.parametrize(
    ("write", "file", "bad"),
    [
        *((write, member("model/file"), member(name)) for name in NAMES),
        (write, member("model/file"), member("model/link", tarfile.SYMTYPE, "/etc/passwd")),
        (write, member("model/file"), member("model/hard", tarfile.LNKTYPE, "../outside")),
        (write, member("model/file"), member("model/pipe", tarfile.FIFOTYPE)),
        (write, member("model/file"), member("model/device", tarfile.CHRTYPE)),
        *((zip_of, zip_member("model/file"), zip_member(name)) for name in [*NAMES, "C:/outside"]),
        (zip_of, zip_member("x"), zip_member("model/link", stat.S_IFLNK | 0o777, b"/etc/passwd")),
        (zip_of, zip_member("x"), zip_member("model/pipe", stat.S_IFIFO | 0o600)),
    ],
)
def test_a_malicious_member_is_refused_and_nothing_is_left(write, file, bad, tmp_path, monkeypatch):
    path = write(tmp_path / ("bad.zip" if write is zip_of else "bad.tar.gz"), file, bad)
    folder = tmp_path / "tmp" / "deep"
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    os.makedirs(folder)
    with pytest.raises(AlbertError, match="do not use it"):
        albert_tf.load_pretrained(path)
    assert [*(tmp_path / "tmp").rglob("*")] == [folder]
    assert not os.path.exists("/outside")


def test_a_header_that_claims_much_memory_is_refused(tmp_path):
    name = tarfile.TarInfo("x")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 1 << 60
    header = name.tobuf(tarfile.GNU_FORMAT)
    path = tmp_path / "long.tar.gz"
    path.write_bytes(gzip.compress(header + bytes(10240)))
    with pytest.raises(AlbertError, match="is damaged"):
        archives.unpack(str(path))


def test_a_damaged_archive_is_refused_in_one_sentence(tf1_archive, tmp_path):
    data = tf1_archive.read_bytes()
    path = tmp_path / "damaged.tar.gz"
    for damaged in (data[: len(data) // 2], b"hello", b""):
        path.write_bytes(damaged)
        with pytest.raises(AlbertError, match="is damaged"):
            archives.unpack(str(path))
    with pytest.raises(AlbertError, match="does not exist"):
        archives.unpack(str(tmp_path / "none.tar.gz"))


def test_an_archive_is_unpacked_once_and_another_of_its_name_again(tf1_archive, tmp_path):
    path = str(shutil.copy(tf1_archive, tmp_path / "own.tar.gz"))
    folder = archives.unpack(path)
    assert os.path.basename(folder) == "albert_tiny"
    assert archives.unpack(path) == folder
    os.utime(path, (0, 0))
    assert archives.unpack(path) != folder


def test_an_archive_of_many_files_is_refused(tmp_path, monkeypatch):
    names = [f"model/{i}" for i in range(9)]
    zipped = zip_of(tmp_path / "many.zip", *map(zip_member, names))
    assert len(os.listdir(archives.unpack(zipped))) == 9
    archives._unpack.cache_clear()
    monkeypatch.setattr(archives, "_MAX_MEMBERS", 8)
    for path in (zipped, write(tmp_path / "many.tar.gz", *map(member, names))):
        with pytest.raises(AlbertError, match="unpack it yourself"):
            archives.unpack(path)


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
        with pytest.raises(AlbertError, match=r"bomb\.\S+ holds more than 6.1e-05 GiB or"):
            archives.unpack(path)
    assert not [*(tmp_path / "tmp").iterdir()]
    # Trained weights hardly shrink.
    random = zip_of(tmp_path / "random.zip", zip_member("a", data=os.urandom(1 << 17)))
    assert os.listdir(archives.unpack(random)) == ["a"]


def test_errors_of_a_model_name_its_archive(tmp_path):
    empty = zip_of(tmp_path / "empty.zip", zip_member("model/checkpoint"))
    with pytest.raises(AlbertError, match=r"/empty\.zip/model[;/ ]"):
        albert_tf.load_pretrained(empty)


def test_a_damaged_zip_is_refused_in_one_sentence(tmp_path):
    whole = zip_of(tmp_path / "whole.zip", zip_member("model/file", data=os.urandom(999)))
    data = bytearray((tmp_path / "whole.zip").read_bytes())
    encrypted, flipped = data.copy(), data.copy()
    encrypted[6] = encrypted[data.index(b"PK\1\2") + 8] = 1
    flipped[100] ^= 1
    path = tmp_path / "damaged.zip"
    for damaged in (data[: len(data) // 2], b"hello", b"", encrypted, flipped):
        path.write_bytes(damaged)
        with pytest.raises(AlbertError, match="is damaged"):
            archives.unpack(str(path))
    assert os.listdir(archives.unpack(whole)) == ["file"]


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


DATA = random.Random(0).randbytes(3 << 20)


@pytest.fixture
def url(server, monkeypatch):
    monkeypatch.setattr(archives, "_PAUSE", 0.0)
    server.files["/model.tar.gz"] = DATA
    return f"{server.url}/model.tar.gz"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "model.tar.gz"


def ranges(server):
    return [asked for *_, asked in server.requests if asked]


def test_a_file_is_downloaded_once_with_its_size_and_checksum(server, url, path, capsys):
    assert download(url, str(path)) == str(path)
    assert path.read_bytes() == DATA and [*path.parent.iterdir()] == [path]
    printed = capsys.readouterr()
    digest = hashlib.sha256(DATA).hexdigest()
    assert f"3,145,728 bytes, SHA-256 {digest}. It is kept as {path}." in printed.err
    assert printed.out == ""  # Some scripts print JSON there.
    download(url, str(path))
    assert len(server.requests) == 1


def test_a_connection_that_ends_early_is_continued_where_it_ended(server, url, path):
    server.cut = [1_000_000, 500_000]
    download(url, str(path))
    assert path.read_bytes() == DATA and [*path.parent.iterdir()] == [path]
    assert ranges(server) == ["bytes=1000000-", "bytes=1500000-"]


def test_a_changed_file_and_a_server_without_ranges_begin_again(server, url, path, monkeypatch):
    def change(seconds):
        server.files["/model.tar.gz"] = DATA[::-1]

    monkeypatch.setattr("time.sleep", change)
    server.cut = [1000]
    download(url, str(path))
    assert path.read_bytes() == DATA[::-1] and ranges(server) == ["bytes=1000-"]
    path.unlink()
    server.answers_ranges = False
    server.cut = [1000]
    download(url, str(path))
    assert path.read_bytes() == DATA[::-1] and len(ranges(server)) == 2


def test_a_connection_that_brings_nothing_is_given_up(server, url, path):
    server.cut = [1000] + [0] * 8
    with pytest.raises(AlbertError) as caught:
        download(url, str(path))
    message = str(caught.value)
    assert "the connection ended after 1,000 of 3,145,728 bytes" in message
    assert message.endswith(f"or download the file elsewhere and copy it to {path}.")
    assert len(server.requests) == archives._ATTEMPTS and not path.exists()
    server.cut.clear()
    download(url, str(path))
    assert path.read_bytes() == DATA and [*path.parent.iterdir()] == [path]


def test_a_server_that_always_begins_again_and_breaks_off_is_given_up(server, url, path):
    server.answers_ranges = False
    server.cut = [*range(1000, 0, -100)]
    with pytest.raises(AlbertError, match="the connection ended after 600 of"):
        download(url, str(path))


def test_a_folder_that_cannot_be_made_is_one_sentence(url, path):
    path.parent.write_text("mine")
    with pytest.raises(AlbertError, match=r"cache cannot be a folder, because .* is not a folder"):
        download(url, str(path))


def test_processes_that_want_the_same_file_all_get_it(server, url, path):
    program = (
        "import sys; from albert_tf.pretrained.archives import download; download(*sys.argv[1:])"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", program, url, str(path)]
    processes = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert path.read_bytes() == DATA and [*path.parent.iterdir()] == [path]


def test_a_server_that_is_busy_is_asked_again(server, url, path):
    server.errors = [503, 500]
    download(url, str(path))
    assert path.read_bytes() == DATA and len(server.requests) == 3


def test_a_missing_file_is_one_sentence_at_once(server, path):
    with pytest.raises(AlbertError, match=r"downloaded: the server answers HTTP Error 404: Not "):
        download(f"{server.url}/absent.tar.gz", str(path))
    assert len(server.requests) == 1
    assert not path.exists()
