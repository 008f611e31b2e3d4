# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents and layouts; bad input."""

import gzip
import importlib
import json
import tracemalloc

import pytest

import albert_tf.data_prep.split_sentences as split_sentences_module
from albert_tf.data_prep.split_sentences import Layout, list_files, split_sentences
from albert_tf.errors import AlbertError
from albert_tf.io import text_files
from albert_tf.io.text_files import read_lines


def split(tmp_path, text, **layout):
    """Returns the sentences of each document of `text`."""
    source = tmp_path / "in.txt"
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    split_sentences([str(source)], str(tmp_path / "out.txt"), Layout(**layout), overwrite=True)
    return documents(tmp_path / "out.txt")


def documents(path):
    text = "\n".join(read_lines(str(path)))
    return [document.split("\n") for document in text.split("\n\n")]


def test_wrapped_chinese_lines_are_joined_without_a_space(tmp_path):
    text = "孔子曾\n問：「何也\n？」不知\n\n  我用\nPython\n写“程\n序”。\nIt is\n“so”\n한\n국."
    assert split(tmp_path, text) == [
        ["孔子曾問：「何也？」", "不知", "我用 Python 写“程序”。", "It is “so” 한 국."]
    ]


def test_wrapped_lines_paragraphs_and_documents(tmp_path):
    text = (
        "A title\n\nThe first\nsentence. The\nsecond.\n\nMore.\n\n\nNew chapter.\n\n\n\n\n\nLast.\n"
    )
    assert split(tmp_path, text) == [
        ["A title", "The first sentence.", "The second.", "More."],
        ["New chapter."],
        ["Last."],
    ]
    assert split(tmp_path, text, document_blank_lines=1)[:3] == [
        ["A title"],
        ["The first sentence.", "The second."],
        ["More."],
    ]
    assert split(tmp_path, text, join_lines=False)[0] == [
        "A title", "The first", "sentence.", "The", "second.", "More.",
    ]  # fmt: skip


def test_crlf_and_odd_white_space(tmp_path):
    assert split(tmp_path, "One\r\ntwo.\t  Three\xa0four.\r\n\r\n\r\nFive.\r\n") == [
        ["One two.", "Three four."],
        ["Five."],
    ]


def test_without_blank_lines_between_documents_each_file_is_one(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "b.txt").write_text("B one.\n\n\n\nB two.")
    (tmp_path / "in" / "deep" / "c.txt.gz").write_bytes(gzip.compress(b"C one."))
    (tmp_path / "in" / "empty.txt").write_text("\n")
    paths = list_files(str(tmp_path / "in"))
    counts = split_sentences(paths, str(tmp_path / "out.gz"), Layout(document_blank_lines=0))
    assert sorted(documents(tmp_path / "out.gz")) == [["B one.", "B two."], ["C one."]]
    assert (counts.documents, counts.sentences) == (2, 3)
    assert (tmp_path / "out.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_a_file_that_two_patterns_match_is_read_once(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    paths = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert list_files(f"{tmp_path},{tmp_path}/a.txt") == paths


def test_each_json_line_is_a_document(tmp_path):
    rows = [{"text": "One.\nTwo.\n\n\nThree.", "id": 1}, {"text": ""}, {"text": "Four é."}]
    text = "\n".join(json.dumps(row) for row in rows) + "\n\n"
    expected = [["One.", "Two.", "Three."], ["Four é."]]
    assert split(tmp_path, text, input_format="jsonl") == expected
    parquet = importlib.import_module("pyarrow.parquet")
    path, output = str(tmp_path / "in.parquet"), str(tmp_path / "out.txt")
    parquet.write_table(importlib.import_module("pyarrow").Table.from_pylist(rows), path)
    for texts, form in (([path], "parquet"), (iter(rows), "text"), (rows, "text")):
        split_sentences(texts, output, Layout(form), overwrite=True)
        assert documents(output) == expected
    with pytest.raises(AlbertError, match=r"^input row 0: there is no text under the key 'text'"):
        split_sentences([{"body": "A."}], output, Layout(), overwrite=True)


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"text": 1}', r'{"text": "a\u0000"}', r'{"text": "a\ud83d"}']
)
def test_a_bad_json_line_is_located(tmp_path, line):
    with pytest.raises(AlbertError, match=r"in\.txt:3: "):
        split(tmp_path, '{"text": "x"}\n\n' + line, input_format="jsonl")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "No sentence was found"),
        (b"\n \n\r\n", "No sentence was found"),
        (b"Good.\ncaf\xe9\n", r"in\.txt:2: not UTF-8"),
    ],
)
def test_bad_input_is_reported_and_leaves_nothing(tmp_path, data, message):
    with pytest.raises(AlbertError, match=message):
        split(tmp_path, data)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_memory_does_not_grow_with_text_without_blank_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(split_sentences_module, "_BATCH_CHARACTERS", 1 << 13)
    line = "It was a dark and stormy night; the rain fell in torrents.\n"

    def peak(lines):
        (tmp_path / "big.txt").write_text(line * lines)
        tracemalloc.start()
        counts = split_sentences(
            [str(tmp_path / "big.txt")], str(tmp_path / "out"), Layout(), overwrite=True
        )
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert counts.sentences == lines
        return memory

    peak(300)  # Loads the libraries.
    assert peak(3_000) < 1.3 * peak(300)


def test_text_without_capitals_is_split_and_mentioned(run_script, tmp_path):
    (tmp_path / "in.txt").write_text("one sentence. and more.\n\nOne. Two, i.e. three. and so on.")
    done = run_script(
        split_sentences_module,
        f"--input_file={tmp_path}/in.txt",
        f"--output_file={tmp_path}/out.txt",
    ).ok()
    assert documents(tmp_path / "out.txt") == [
        ["one sentence.", "and more.", "One.", "Two, i.e. three. and so on."]
    ]
    assert "2 of them are in paragraphs without a capital letter" in done.stdout


def test_an_existing_output_is_kept_without_overwrite(run_script, tmp_path):
    (tmp_path / "in.txt").write_text("One sentence. And another one.\n")
    output = tmp_path / "out.txt"
    output.write_text("kept")
    flags = f"--input_file={tmp_path}/in.txt", f"--output_file={output}"
    done = run_script(split_sentences_module, *flags)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {output} already exists; give")
    assert output.read_text() == "kept"
    done = run_script(split_sentences_module, *flags, "--overwrite").ok()
    assert "2 sentences in 1 documents" in done.stdout
    assert output.read_text() == "One sentence.\nAnd another one.\n"
