# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls of the file system are tried again while their error may pass."""

from __future__ import annotations

import errno
import os

import pytest
import tensorflow as tf

from albert_tf.errors import StoppedError
from albert_tf.io import files, storage

E = tf.errors
PASSING = [
    *(lambda c=c: OSError(c, os.strerror(c), "/x") for c in (
        errno.EIO, errno.EACCES, errno.ESTALE, errno.ETIMEDOUT,
    )),
    *(lambda c=c: c(None, None, "/x; why") for c in (
        E.UnavailableError, E.ResourceExhaustedError, E.DeadlineExceededError,
        E.PermissionDeniedError, E.UnknownError, E.AbortedError, E.InternalError,
    )),
]  # fmt: skip
FINAL = [
    *(lambda c=c: OSError(c, os.strerror(c), "/x") for c in (errno.ENOENT, errno.ENOSPC)),
    *(lambda c=c: c(None, None, "/x; why") for c in (E.NotFoundError, E.DataLossError)),
    lambda: E.ResourceExhaustedError(None, None, "/x; No space left on device"),
]


@pytest.fixture
def pauses(monkeypatch):
    waited = []
    monkeypatch.setattr(storage.time, "sleep", waited.append)
    return waited


def failing(error, times):
    left = [error()] * times

    def operation(path):
        if left:
            raise left.pop()
        return path

    return operation


@pytest.mark.parametrize("error", PASSING)
def test_an_error_that_may_pass_is_tried_again_with_growing_pauses(pauses, capsys, error):
    assert storage.retried(failing(error, 3), "/x") == "/x"
    assert pauses == sorted({*pauses}) and len(pauses) == 3
    assert capsys.readouterr().err.count("/x") == 3
    with pytest.raises(StoppedError, match=r"4 times in a row; nothing that was written before"):
        storage.retried(failing(error, 4), "/x")


@pytest.mark.parametrize("error", FINAL)
def test_an_answer_and_a_full_disk_are_not_tried_again(pauses, error):
    with pytest.raises(type(error())):
        storage.retried(failing(error, 1), "/x")
    assert not pauses


def test_a_file_that_may_not_be_looked_at_is_not_taken_for_missing(pauses, tmp_path, unprivileged):
    path = tmp_path / "closed/best.json"
    path.parent.mkdir()
    path.touch()
    path.parent.chmod(0)
    refused = pytest.raises(StoppedError, match=r"Permission denied: .*best\.json, 4 times")
    for look in (storage.exists, storage.isdir, files.exists, files.check_file, files.read_bytes):
        with unprivileged(), refused:
            look(str(path))


def test_a_rename_that_failed_after_the_fact_is_a_success(pauses, tmp_path, monkeypatch):
    (tmp_path / "a").touch()
    rename = tf.io.gfile.rename

    def once(source, target, overwrite):
        rename(source, target, overwrite)
        raise E.UnknownError(None, None, f"{source}; Input/output error")

    monkeypatch.setattr(tf.io.gfile, "rename", once)
    storage.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert os.listdir(tmp_path) == ["b"]
    with pytest.raises(E.NotFoundError):
        storage.rename(f"{tmp_path}/a", f"{tmp_path}/b")


@pytest.mark.parametrize("scheme", ["", "ram:/"])
def test_what_is_not_there_is_an_answer(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}/run"
    assert not storage.exists(folder) and not storage.isdir(folder)
    assert storage.listdir(folder) == []
    files.write_text(f"{folder}/b/c", "")
    files.write_text(f"{folder}/a", "")
    assert storage.listdir(folder) == ["a", "b"]
    for absent in ("/dev/null/x", f"{tmp_path}/{100 * 'long'}", f"{tmp_path}/\0"):
        assert not storage.exists(absent) and not files.exists(absent)
