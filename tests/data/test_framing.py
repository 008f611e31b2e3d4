# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Damaged TFRecord files: which records are lost, and which can still be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import framing
from albert_tf.data.framing import BAD_PAYLOAD, CUT_OFF, FRAME_BYTES, read_frames
from albert_tf.errors import AlbertError
from tests.support.numbered_records import with_checksum

PAYLOADS = [bytes([i]) * (10 + 7 * i) for i in range(9)]
OFFSETS = np.cumsum([0, *(len(x) + FRAME_BYTES for x in PAYLOADS)]).tolist()


@pytest.fixture(params=[4 << 20, 50], ids=["one block", "many blocks"])
def path(request, tmp_path, monkeypatch):
    monkeypatch.setattr(framing, "_BLOCK_BYTES", request.param)
    path = str(tmp_path / "shard")
    with tf.io.TFRecordWriter(path) as writer:
        for payload in PAYLOADS:
            writer.write(payload)
    return path


def change(path, at, new):
    data = bytearray(Path(path).read_bytes())
    data[at : at + len(new)] = new
    Path(path).write_bytes(data)


def frames(path):
    return [tuple(frame) for frame in read_frames(path)]


INTACT = [(i, OFFSETS[i], payload, "") for i, payload in enumerate(PAYLOADS)]


def test_intact_records_are_read_with_their_offsets(path):
    assert frames(path) == INTACT
    assert Path(path).read_bytes().startswith(with_checksum(len(PAYLOADS[0])))


@pytest.mark.parametrize("number", [0, 4, 8])
@pytest.mark.parametrize("byte", [8, 12, -1], ids=["checksum of length", "payload", "checksum"])
def test_a_damaged_payload_or_checksum_loses_one_record(path, number, byte):
    change(path, OFFSETS[number if byte > 0 else number + 1] + byte, b"\xff")
    lost = (number, OFFSETS[number], None, BAD_PAYLOAD)
    assert frames(path) == [*INTACT[:number], lost, *INTACT[number + 1 :]]


@pytest.mark.parametrize("number", [0, 4, 8])
@pytest.mark.parametrize("byte", [0, 1, 7])
def test_a_damaged_length_loses_all_later_records(path, number, byte):
    change(path, OFFSETS[number] + byte, b"\x7f")
    assert frames(path) == [*INTACT[:number], (number, OFFSETS[number], None, CUT_OFF)]


def test_adjacent_damaged_records_are_told_from_a_damaged_length(path):
    change(path, OFFSETS[3] + 12, b"\xff")
    change(path, OFFSETS[4] + 12, b"\xff")
    lost = [(i, OFFSETS[i], None, BAD_PAYLOAD) for i in (3, 4)]
    assert frames(path) == [*INTACT[:3], *lost, *INTACT[5:]]
    change(path, OFFSETS[5], b"\x7f")
    assert frames(path) == [*INTACT[:3], (3, OFFSETS[3], None, CUT_OFF)]


@pytest.mark.parametrize("length", [400, 1 << 31, 1 << 60, (1 << 64) - 1])
def test_a_huge_length_with_a_valid_checksum_allocates_no_memory(path, length):
    change(path, OFFSETS[6], with_checksum(length))
    assert frames(path) == [*INTACT[:6], (6, OFFSETS[6], None, CUT_OFF)]


@pytest.mark.parametrize("kept", [1, 11, 12, 20])
def test_a_cut_off_file_loses_its_last_records(path, kept):
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: OFFSETS[5] + kept])
    assert frames(path) == [*INTACT[:5], (5, OFFSETS[5], None, CUT_OFF)]


@pytest.mark.parametrize("number", [0, 4, 9])
def test_zeros_at_the_end_are_one_fault(path, number):
    change(path, OFFSETS[number], bytes(OFFSETS[-1] - OFFSETS[number] + 4096))
    assert frames(path) == [*INTACT[:number], (number, OFFSETS[number], None, CUT_OFF)]


def test_a_wrong_length_within_the_file_is_not_read_at_once(path, monkeypatch):
    change(path, OFFSETS[2], (OFFSETS[6] - OFFSETS[2] - FRAME_BYTES).to_bytes(8, "little"))
    lost = (2, OFFSETS[2], None, BAD_PAYLOAD)
    later = [(i - 3, *INTACT[i][1:]) for i in (6, 7, 8)]
    assert frames(path) == [*INTACT[:2], lost, *later]


def test_an_empty_file_has_no_records_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert frames(str(tmp_path / "empty")) == []
    with pytest.raises(AlbertError, match="none does not exist"):
        frames(str(tmp_path / "none"))
