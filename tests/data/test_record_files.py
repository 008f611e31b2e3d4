# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Damaged TFRecord files: the first damaged record is named, after all before it were read."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import record_files
from albert_tf.data.record_files import read_examples
from albert_tf.data.records import FRAME_BYTES
from albert_tf.errors import AlbertError
from tests.support.numbered_records import with_checksum

PAYLOADS = [bytes([i]) * (10 + 7 * i) for i in range(9)]
OFFSETS = np.cumsum([0, *(len(x) + FRAME_BYTES for x in PAYLOADS)]).tolist()
BAD, CUT_OFF = "its checksum is wrong", "the file is cut off or damaged"


@pytest.fixture(params=[1000, 4], ids=["one batch", "many batches"])
def path(request, tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "_BATCH", request.param)
    path = tmp_path / "shard"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in PAYLOADS:
            writer.write(payload)
    return path


def change(path, at, new):
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


def check_first_fault(path, number, fault):
    """Checks that the records before a damaged one are read, and that it is named."""
    examples = read_examples(str(path))
    assert [next(examples) for _ in range(number)] == PAYLOADS[:number]
    with pytest.raises(AlbertError, match=rf"record {number} \(byte {OFFSETS[number]}\): {fault}"):
        next(examples)


def test_intact_records_are_read(path, tmp_path):
    assert list(read_examples(str(path))) == PAYLOADS
    assert path.read_bytes().startswith(with_checksum(len(PAYLOADS[0])))
    (tmp_path / "empty").write_bytes(b"")
    assert list(read_examples(str(tmp_path / "empty"))) == []
    with pytest.raises(AlbertError, match="none does not exist"):
        next(read_examples(str(tmp_path / "none")))


@pytest.mark.parametrize("number", [0, 4, 8])
@pytest.mark.parametrize(
    ("byte", "new"),
    [
        (0, b"\x7f"),  # The length, which may still be within the file, or not.
        (7, b"\x7f"),
        (8, b"\xff"),  # The checksum of the length.
        (12, b"\xff" * 3),
        (0, bytes(12)),
    ],
)
def test_a_damaged_record_is_named(path, number, byte, new):
    change(path, OFFSETS[number] + byte, new)
    check_first_fault(path, number, f"({BAD}|{CUT_OFF})")


@pytest.mark.parametrize("length", [400, 1 << 31, 1 << 60, (1 << 64) - 1])
def test_a_huge_length_with_a_valid_checksum_allocates_no_memory(path, length):
    change(path, OFFSETS[6], with_checksum(length))
    check_first_fault(path, 6, CUT_OFF)


@pytest.mark.parametrize("kept", [1, 11, 12, 20])
def test_a_cut_off_file_is_named(path, kept):
    path.write_bytes(path.read_bytes()[: OFFSETS[5] + kept])
    check_first_fault(path, 5, CUT_OFF)


@pytest.mark.parametrize("number", [0, 4, 9])
def test_zeros_at_the_end_are_a_fault(path, number):
    change(path, OFFSETS[number], bytes(OFFSETS[-1] - OFFSETS[number] + 4096))
    check_first_fault(path, number, BAD)
