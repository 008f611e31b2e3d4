# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""demo/data: held-out text is not in the training text, and labels are balanced."""

import collections
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
