# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
import io
import os
import tarfile

import pytest

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.pretrained import archive


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


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("model/../../outside"),
        member("/outside"),
        member("model/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("model/hard", tarfile.LNKTYPE, "../outside"),
        member("model/pipe", tarfile.FIFOTYPE),
        member("model/device", tarfile.CHRTYPE),
    ],
    ids=lambda info: info.name,
)
def test_a_malicious_member_is_refused_and_nothing_is_written(bad, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp" / "deep"))
    os.makedirs(tmp_path / "tmp" / "deep")
    path = write(tmp_path / "bad.tar.gz", member("model/file"), bad)
    with pytest.raises(AlbertError, match="do not use it"):
        albert_tf.load_pretrained(path)
    assert not [p for p in (tmp_path / "tmp").rglob("*") if not p.is_dir()]
    assert not os.path.exists("/outside")


def test_a_link_is_refused_before_anything_is_written_through_it(tmp_path):
    (tmp_path / "outside").mkdir()
    link = member("model", tarfile.SYMTYPE, str(tmp_path / "outside"))
    path = write(tmp_path / "link.tar.gz", link, member("model/file"))
    with pytest.raises(AlbertError, match="neither a file nor a folder"):
        archive.unpack(path)
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize(("name", "limit"), [("_MAX_MEMBERS", 8), ("_MAX_BYTES", 9 * 4 - 1)])
def test_an_archive_above_the_limits_is_refused(name, limit, tmp_path, monkeypatch):
    path = write(tmp_path / "many.tar.gz", *(member(f"model/{i}") for i in range(9)))
    monkeypatch.setattr(archive, name, limit)
    with pytest.raises(AlbertError, match="unpack it yourself"):
        archive.unpack(path)


def test_a_header_that_claims_much_memory_is_refused(tmp_path):
    path = write(tmp_path / "long.tar.gz", member("a" * 2_000_000))
    with pytest.raises(AlbertError, match="is damaged"):
        archive.unpack(path)
    name = tarfile.TarInfo("x")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 1 << 60
    header = name.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "long.tar.gz").write_bytes(gzip.compress(header + bytes(10240)))
    with pytest.raises(AlbertError, match="is damaged"):
        archive.unpack(path)


def test_a_damaged_archive_is_refused_in_one_sentence(tf1_archive, tmp_path):
    data = tf1_archive.read_bytes()
    path = tmp_path / "damaged.tar.gz"
    for damaged in (data[: len(data) // 2], b"hello", b""):
        path.write_bytes(damaged)
        with pytest.raises(AlbertError, match="is damaged"):
            archive.unpack(str(path))
    with pytest.raises(AlbertError, match="does not exist"):
        archive.unpack(str(tmp_path / "none.tar.gz"))


def test_an_archive_is_unpacked_once(tf1_archive):
    folder = archive.unpack(str(tf1_archive))
    assert os.path.basename(folder) == "albert_tiny"
    assert archive.unpack(str(tf1_archive)) == folder
