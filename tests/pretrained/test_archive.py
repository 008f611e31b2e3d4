# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import warnings
import zipfile

import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.pretrained import archive
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


def check_refused(path, tmp_path, monkeypatch):
    """Checks that an archive is refused as malicious and that nothing of it is written."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp" / "deep"))
    os.makedirs(tmp_path / "tmp" / "deep")
    with pytest.raises(AlbertError, match="do not use it"):
        albert_tf.load_pretrained(path)
    assert not [p for p in (tmp_path / "tmp").rglob("*") if not p.is_dir()]
    assert not os.path.exists("/outside")


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
    path = write(tmp_path / "bad.tar.gz", member("model/file"), bad)
    check_refused(path, tmp_path, monkeypatch)


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
        zip_member("../outside"),
        zip_member("model/../../outside"),
        zip_member("/outside"),
        zip_member("C:/outside"),
        zip_member("model/link", stat.S_IFLNK | 0o777, b"/etc/passwd"),
        zip_member("model/pipe", stat.S_IFIFO | 0o600),
    ],
    ids=lambda member: member[0].filename,
)
def test_a_malicious_member_of_a_zip_is_refused_and_nothing_is_written(bad, tmp_path, monkeypatch):
    path = zip_of(tmp_path / "bad.zip", zip_member("model/file"), bad)
    check_refused(path, tmp_path, monkeypatch)


@pytest.mark.parametrize(("name", "limit"), [("_MAX_MEMBERS", 8), ("_MAX_BYTES", 9 * 4 - 1)])
def test_a_zip_above_the_limits_is_refused(name, limit, tmp_path, monkeypatch):
    path = zip_of(tmp_path / "many.zip", *(zip_member(f"model/{i}") for i in range(9)))
    assert len(os.listdir(archive.unpack(path))) == 9
    os.utime(path, (0, 0))
    monkeypatch.setattr(archive, name, limit)
    with pytest.raises(AlbertError, match="unpack it yourself"):
        archive.unpack(path)


def test_a_small_archive_that_holds_much_is_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(archive, "_MAX_SMALL_BYTES", 1 << 16)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    zeros = bytes(1 << 20)
    zipped = zip_of(tmp_path / "bomb.zip", zip_member("a"), zip_member("b", data=zeros))
    (tmp_path / "zeros").write_bytes(zeros)
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as f:
        f.add(tmp_path / "zeros", "zeros")
    for path in (zipped, str(tmp_path / "bomb.tar.gz")):
        with pytest.raises(AlbertError, match=r"bomb\.\S+ holds more than 6.1e-05 GiB or"):
            archive.unpack(path)
    assert not list((tmp_path / "tmp").iterdir())
    # Trained weights hardly shrink.
    random = zip_of(tmp_path / "random.zip", zip_member("a", data=os.urandom(1 << 17)))
    assert os.listdir(archive.unpack(random)) == ["a"]


def test_errors_name_the_archive(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's, of the repeated name.
        repeated = zip_of(tmp_path / "twice.zip", zip_member("file"), zip_member("file"))
    with pytest.raises(AlbertError, match=r"twice\.zip is damaged \(File exists\); get it again"):
        archive.unpack(repeated)
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
            archive.unpack(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's, of the repeated name.
        repeated = zip_of(tmp_path / "twice.zip", zip_member("file"), zip_member("file"))
    with pytest.raises(AlbertError, match="is damaged"):
        archive.unpack(repeated)
    assert os.listdir(archive.unpack(whole)) == ["file"]


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


def test_a_chinese_model_of_another_architecture_is_recognised(tmp_path):
    folder = write_release(tmp_path / "albert_tiny_zh", "vocab.txt", CHINESE_PIECES)
    (folder / "checkpoint").unlink()
    for path in folder.glob("model.ckpt-best*"):
        path.unlink()
    tf.raw_ops.SaveV2(
        prefix=str(folder / "albert_model.ckpt"),
        tensor_names=["bert/encoder/layer_shared/output/dense/bias"],
        shape_and_slices=[""],
        tensors=[tf.zeros([2])],
    )
    path = write_zip(tmp_path / "albert_tiny.zip", folder)
    with pytest.raises(AlbertError, match="take one with `google` in its name"):
        albert_tf.load_pretrained(str(path))
