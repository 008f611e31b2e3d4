# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.pretrained.downloads, against a server on loopback."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from albert_tf.errors import AlbertError
from albert_tf.pretrained import downloads
from albert_tf.pretrained.downloads import download

DATA = random.Random(0).randbytes(3 << 20)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(downloads, "_PAUSE", 0.0)


@pytest.fixture
def url(server):
    server.files["/model.tar.gz"] = DATA
    return f"{server.url}/model.tar.gz"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "model.tar.gz"


def names(path):
    return sorted(os.listdir(path.parent))


def test_a_file_is_downloaded_once_with_its_size_and_checksum(server, url, path, capsys):
    assert download(url, str(path)) == str(path)
    assert path.read_bytes() == DATA and names(path) == [path.name]
    printed = capsys.readouterr()
    digest = hashlib.sha256(DATA).hexdigest()
    assert f"3,145,728 bytes, SHA-256 {digest}. It is kept as {path}." in printed.err
    assert printed.out == ""  # Some scripts print JSON there.
    download(url, str(path))
    assert len(server.requests) == 1


def test_a_connection_that_ends_early_is_continued_where_it_ended(server, url, path):
    server.cut = [1_000_000, 500_000]
    download(url, str(path))
    assert path.read_bytes() == DATA and names(path) == [path.name]
    assert [asked for *_, asked in server.requests] == [None, "bytes=1000000-", "bytes=1500000-"]


def test_a_later_call_continues_and_the_name_appears_only_at_the_end(server, url, path):
    server.cut = [1000, 0, 0, 0]
    with pytest.raises(AlbertError) as caught:
        download(url, str(path))
    message = str(caught.value)
    assert "the connection ended after 1,000 of 3,145,728 bytes" in message
    assert f"copy it to {path}. 1,000 bytes are here already" in message
    assert names(path) == [f"{path.name}.part", f"{path.name}.part.version"]
    server.cut.clear()
    download(url, str(path))
    assert path.read_bytes() == DATA and names(path) == [path.name]
    assert server.requests[-1][2] == "bytes=1000-"


@pytest.mark.parametrize("answers_ranges", [True, False])
def test_a_changed_file_and_a_server_without_ranges_begin_again(server, url, path, answers_ranges):
    server.cut = [1000, 0, 0, 0]
    with pytest.raises(AlbertError):
        download(url, str(path))
    server.cut.clear()
    server.answers_ranges = answers_ranges
    server.files["/model.tar.gz"] = other = DATA[::-1]
    download(url, str(path))
    assert path.read_bytes() == other


def test_a_part_of_unknown_origin_is_not_continued(server, url, path):
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(b"something else")
    download(url, str(path))
    assert path.read_bytes() == DATA


def test_a_process_killed_before_the_renaming_needs_no_second_download(server, url, path):
    server.cut = [len(DATA) - 1, 0, 0, 0]
    with pytest.raises(AlbertError):
        download(url, str(path))
    Path(f"{path}.part").write_bytes(DATA)
    server.requests.clear()
    download(url, str(path))
    assert path.read_bytes() == DATA
    assert [asked for *_, asked in server.requests] == [f"bytes={len(DATA)}-"]


def test_a_part_longer_than_the_file_begins_again(server, url, path):
    server.cut = [1000, 0, 0, 0]
    with pytest.raises(AlbertError):
        download(url, str(path))
    Path(f"{path}.part").write_bytes(DATA + b"more")
    server.cut.clear()
    download(url, str(path))
    assert path.read_bytes() == DATA


def test_a_missing_file_is_one_sentence_at_once(server, path):
    with pytest.raises(AlbertError, match=r"absent\.tar\.gz cannot be downloaded: the server"):
        download(f"{server.url}/absent.tar.gz", str(path))
    assert len(server.requests) == 1
    assert not path.exists()


def test_without_a_network_the_error_says_which_file_goes_where(path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/model.tar.gz"
        with pytest.raises(AlbertError) as caught:
            download(url, str(path))
    message = str(caught.value)
    assert message.startswith(f"{url} cannot be downloaded ([Errno 111] Connection refused); ")
    assert message.endswith(f"download the file elsewhere and copy it to {path}.")


def test_processes_that_want_the_same_file_download_it_once(server, url, path):
    program = (
        "import sys; from albert_tf.pretrained.downloads import download; download(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, url, str(path)]
    processes = [
        subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    threads = [threading.Thread(target=process.wait) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.returncode for process in processes] == [0, 0]
    assert path.read_bytes() == DATA and len(server.requests) == 1


def test_a_folder_that_cannot_be_written_is_named(url, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AlbertError, match=r"cache cannot be a folder, because .* is not a folder"):
        download(url, f"{tmp_path}/file/cache/model.tar.gz")


def test_the_cache_folder_is_the_user_s_unless_the_environment_names_one(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("ALBERT_TF_CACHE", raising=False)
    assert downloads.cache_folder() == "/home/me/.cache/albert_tf"
    monkeypatch.setenv("ALBERT_TF_CACHE", "~/models")
    assert downloads.cache_folder() == "/home/me/models"
