# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables made of real text: each row has what its label says."""

import random

import pytest

from benchmarks.made_texts import ends, subjects

pytestmark = pytest.mark.tooling


def test_texts_end_with_the_sentence_that_has_the_label():
    lines = [f"line {number} of the book" for number in range(150)]
    rows = [("a fine film", "1"), ("awful", "0")]
    made = [*ends(lines, rows, random.Random(0))]
    assert [label for _, label in made] == ["1", "0"]
    for (text, _), (sentence, _) in zip(made, rows):
        assert text.startswith("line ") and text.endswith(f" {sentence}")
        assert 50 <= len(text.split()) - len(sentence.split()) < 120


def test_texts_have_a_paragraph_of_each_of_their_subjects():
    paragraphs = {"art": ["paint"], "law": ["court"], "war": ["battle"]}
    subject = {texts[0]: name for name, texts in paragraphs.items()}
    made = [*subjects(paragraphs, {"art": 1, "law": 2, "war": 3}, 40, random.Random(0))]
    assert {len(text.split()) for text, _ in made} == {1, 2, 3}
    for text, names in made:
        assert sorted(map(subject.get, text.split())) == names.split("|")
