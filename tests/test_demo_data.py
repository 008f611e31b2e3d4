# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""demo/data: held-out text is not in the training text, and labels are balanced."""

import ast
import collections
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "demo/data"
README = (ROOT / "README.md").read_text("utf-8")
AUTHORS = ["darwin", "dickens", "doyle", "smith", "spinoza", "washington"]


def words(part):
    """Returns the text of each author without line breaks."""
    paths = sorted((DATA / "books" / part).glob("*.txt"))
    return {path.stem: " ".join(path.read_text("utf-8").split()) for path in paths}


def rows(name):
    header, *lines = (DATA / f"authors/{name}.tsv").read_text("utf-8").splitlines()
    assert header == "sentence\tauthor"
    return [tuple(line.split("\t")) for line in lines]


def test_six_books_have_about_two_megabytes():
    train, held_out = words("train"), words("heldout")
    assert list(train) == list(held_out) == AUTHORS
    assert 1.8e6 < sum(len(text) for text in [*train.values(), *held_out.values()]) < 2.2e6
    assert min(map(len, held_out.values())) > 30_000


def test_sources_name_all_books():
    sources = (DATA / "SOURCES.md").read_text("utf-8")
    assert [author for author in AUTHORS if f"`{author}.txt`" not in sources] == []


@pytest.mark.parametrize(
    ("name", "part", "count"), [("train", "train", 60), ("dev", "heldout", 80)]
)
def test_labelled_sentences_are_balanced_and_from_their_part(name, part, count):
    text = words(part)
    assert collections.Counter(author for _, author in rows(name)) == dict.fromkeys(AUTHORS, count)
    assert [sentence for sentence, author in rows(name) if sentence not in text[author]] == []


def test_no_labelled_sentence_is_in_the_other_part():
    train, held_out = (" ".join(words(part).values()) for part in ("train", "heldout"))
    assert [sentence for sentence, _ in rows("dev") if sentence in train] == []
    assert [sentence for sentence, _ in rows("train") if sentence in held_out] == []


def test_labelled_sentences_have_50_to_250_characters_and_are_shuffled():
    for name in ("train", "dev"):
        labels = [author for _, author in rows(name)]
        assert labels != sorted(labels)
        assert all(50 <= len(sentence) <= 250 for sentence, _ in rows(name))


def test_a_collection_without_the_book_is_refused(tmp_path, monkeypatch):
    (tmp_path / "books.txt").write_text("Another book.\n\nAnd its second chapter.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_demo_data.py", "books.txt", "data"])
    with pytest.raises(SystemExit, match=r"^error: 0 chapters open with"):
        runpy.run_path(str(ROOT / "scripts/make_demo_data.py"), run_name="__main__")
    assert not (tmp_path / "data").exists()


def test_the_readme_shows_what_the_demo_asks_and_where_the_texts_are_from():
    # Parsed, as importing the script would define its required flags here.
    program = ast.parse((ROOT / "demo/ask.py").read_text("utf-8"))
    (texts,) = [
        ast.literal_eval(node.value)
        for node in program.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "TEXTS"
    ]
    (block,) = re.findall(r"The exported SavedModel answers\n(.*?)```", README, flags=re.S)
    answers = re.findall(r"(.*?)→ \w+ +[\d.]+%  (.*?)\n", block, flags=re.S)
    assert {" ".join(text.split()): source for text, source in answers} == texts
