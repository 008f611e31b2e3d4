# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""demo/data: labels are balanced, and no held-out text is in the training text."""

import collections
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "demo/data"
AUTHORS = ["darwin", "dickens", "doyle", "smith", "spinoza", "washington"]


@pytest.mark.parametrize(
    ("name", "part", "other", "count"),
    [("train", "train", "heldout", 60), ("dev", "heldout", "train", 80)],
)
def test_labelled_sentences_are_balanced_and_from_their_part_alone(name, part, other, count):
    header, *lines = (ROOT / f"albert_tf/sample_data/{name}.tsv").read_text("utf-8").splitlines()
    assert header == "sentence\tauthor"
    rows = [line.split("\t") for line in lines]
    # The text of each author without line breaks.
    here, there = (
        {path.stem: " ".join(path.read_text("utf-8").split()) for path in DATA.glob(f"books/{p}/*")}
        for p in (part, other)
    )
    assert collections.Counter(author for _, author in rows) == dict.fromkeys(AUTHORS, count)
    assert [sentence for sentence, author in rows if sentence not in here[author]] == []
    elsewhere = " ".join(there.values())
    assert [sentence for sentence, _ in rows if sentence in elsewhere] == []
