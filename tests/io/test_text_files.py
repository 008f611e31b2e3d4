# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Text files: lines of good and bad files, compressed or not, and writing them."""

import bz2
import functools
import gzip
import lzma
import tracemalloc

import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.text_files import MAX_LINE_BYTES, new_text_file, read_lines

COMPRESSORS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": functools.partial(lzma.compress, preset=0),  # To be fast.
}
SQUARES = b"".join(b"line %d\n" % (i * i) for i in range(10_000))
LINES = ["one", "", "zwei é 漢字", "  three  "]


def write(path, data):
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("\r\n".join(LINES).encode(), LINES),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"", []),
        ("a\x0bb\x0cc\x1dd\x85e\u2028f".encode(), ["a\x0bb\x0cc\x1dd\x85e\u2028f"]),
    ],
    ids=["CRLF", "byte order mark", "empty", "other separators"],
)
def test_only_line_feeds_end_lines_and_only_the_first_byte_order_mark_is_dropped(
    tmp_path, data, lines
):
    assert list(read_lines(write(tmp_path / "a", data))) == lines


def test_lines_across_block_borders_are_whole(tmp_path):
    # Lines of many lengths, with characters of two bytes, over several blocks.
    lines = [f"{i} " + "é" * (i * 7919 % 4001) for i in range(1200)]
    path = write(tmp_path / "a", "\r\n".join(lines).encode())
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize(
    ("name", "problem"),
    [("missing.txt", "does not exist"), ("missing.txt.gz", "does not exist"), ("", "is a folder")],
)
def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path, name, problem):
    with pytest.raises(AlbertError, match=f"{tmp_path / name} {problem}"):
        list(read_lines(str(tmp_path / name)))


@pytest.mark.parametrize("lines_before", [0, 2, 200_000])
@pytest.mark.parametrize(
    ("line", "message"),
    [(b"caf\xe9 au lait\n", r"not UTF-8 \(byte 0xe9\)"), (b"a\0b\n", "a NUL byte")],
)
def test_bytes_that_are_not_text_are_refused_with_their_line(tmp_path, lines_before, line, message):
    path = write(tmp_path / "a", b"0123456789\n" * lines_before + line)
    with pytest.raises(AlbertError, match=rf"a:{lines_before + 1}: {message}"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_truncated_and_damaged_files_and_wrong_suffixes_are_refused(tmp_path, suffix):
    data = bytearray(COMPRESSORS[suffix](SQUARES))
    path = write(tmp_path / f"a{suffix}", data[: len(data) // 2])
    with pytest.raises(AlbertError, match=rf"a{suffix} cannot be decompressed"):
        list(read_lines(path))
    data[len(data) // 2] ^= 0xFF
    for other in (data, b"plain text\n" * 100):
        with pytest.raises(AlbertError, match="cannot be decompressed"):
            list(read_lines(write(tmp_path / f"b{suffix}", other)))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_ten_megabyte_line_is_refused_in_bounded_memory(tmp_path, suffix):
    data = COMPRESSORS[suffix](b"short\n" + b"x" * 10_000_000 + b"\nshort\n")
    path = write(tmp_path / f"a{suffix}", data)
    list(read_lines(write(tmp_path / "warm-up", b"TensorFlow is loaded now\n")))
    tracemalloc.start()
    with pytest.raises(
        AlbertError, match=rf"a{suffix}:2: the line is longer than {MAX_LINE_BYTES}"
    ):
        list(read_lines(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * MAX_LINE_BYTES


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_progress_adds_up_to_the_stored_size(tmp_path, suffix):
    data = COMPRESSORS[suffix](b"".join(b"line %d\n" % (i * i) for i in range(300_000)))
    steps = []
    for _ in read_lines(write(tmp_path / f"a{suffix}", data), on_read=steps.append):
        pass
    assert sum(steps) == len(data)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_written_text_is_read_back(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    with new_text_file(str(path)) as write_text:
        for line in LINES:
            write_text(line + "\n")
    assert list(read_lines(str(path))) == LINES
    assert path.read_bytes()[:2] == COMPRESSORS[suffix](b"on")[:2]
