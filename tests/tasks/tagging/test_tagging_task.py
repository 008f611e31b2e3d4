# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Windows of long texts: each word has one place; predictions on words and texts."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.tagging.data import TaggingSpec, tagged_texts
from albert_tf.tasks.tagging.tagger import TextTagger
from albert_tf.tasks.tagging.task import TaggingTask
from tests.support.builders import tiny_config, write_tokenizer

LETTERS = "abcdefgh"
TAGS = ("B-X", "I-X", "O")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    pieces = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("vocabulary"), pieces)
    config = tiny_config(tokenizer.vocab_size, initializer_range=0.5)
    return TaggingTask(config, tokenizer, TaggingSpec(TAGS, 8), 0.0)


def texts(*sentences, tags=None):
    rows = [{"tokens": x.split(), "tags": tags} for x in sentences]
    return tagged_texts(("row", row) for row in rows)


def test_every_word_has_one_place_in_the_window_that_shows_it_best(task):
    sentences = ["ab c deee f gh a bc d e f ab", "", "a b", "a bbbbbbbbbbbbb c d"]
    data = task.encode(texts(*sentences), labelled=False)
    ids = data.source.batch(range(data.source.num_examples), 8)["input_word_ids"].numpy()
    first = {i: task.tokenizer.encode(letter)[0] for i, letter in enumerate(LETTERS)}
    words = [word for sentence in sentences for word in sentence.split()]
    assert len(data.places) == len(words)
    assert data.source.longest.max() == 8 and len(ids) > len(sentences)
    for word, (window, position) in zip(words, data.places):
        assert ids[window][position] == first[LETTERS.index(word[0])]
    # Of "ab c deee f gh a …", 14 pieces a, ##b, c, d, …: windows of 6 begin at 0, 4, 8.
    assert data.places[:6].tolist() == [[0, 1], [0, 3], [0, 4], [1, 4], [1, 5], [2, 3]]


def test_the_tag_is_at_the_first_piece_and_once(task):
    row = ["B-X", "I-X", "O", "B-X", "O", "X"]
    data = task.encode(texts("ab cd e fgh a b", tags=row))
    rows = data.source.batch(range(data.source.num_examples), 8)["tags"].numpy()
    assert rows[rows >= 0].tolist() == [0, 1, 2, 0, 2]
    assert data.notes == ["the training data has no tags X"]
    with pytest.raises(AlbertError, match="row: the tags are missing"):
        task.encode(texts("a"))


def test_texts_and_words_have_tags_and_entities_with_characters(task):
    tagger = TextTagger(task, task.build_model())
    long = "ab c deee f gh a bc d e f ab " * 3
    assert tagger.predict([]) == []
    found, of_words, empty = tagger.predict([long, long.split(), ""])
    assert found.words == of_words.words == long.split() and found.tags == of_words.tags
    assert empty == ([], [], []) and {*found.tags} <= {*TAGS} and len(found.entities) > 1
    for entity in found.entities:
        assert long[entity.start : entity.end] == entity.text
        assert entity.label == "X" and 1 / 3 <= entity.score <= 1
    data = task.encode(texts(long), labelled=False)
    outputs = data.outputs(functools.partial(task.predict, tagger.model))
    assert outputs["tags"].shape == (data.source.num_examples, 8)
    expected = [TAGS[outputs["tags"][window, position]] for window, position in data.places]
    assert found.tags == expected
    with pytest.raises(AlbertError, match="texts must be a list"):
        tagger.predict("a text")


def test_an_empty_text_has_no_loss(task):
    data = task.encode(texts("", tags=[]))
    batch = data.source.batch([0], 8)
    means = task.means(task.sums(task.build_model(), batch, True), task.weights(batch))
    assert np.isfinite(means["loss"]) and means["loss"] == 0
