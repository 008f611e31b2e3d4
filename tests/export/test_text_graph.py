# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer in the graph has the ids of the host's."""

import dataclasses
import json
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.export import text_graph
from albert_tf.export.text_graph import tokenizer_graph
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.tokenization.conftest import RELEASED_MODEL, needs_release

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "tokenization_cases.json").read_text("utf-8"))


def graph_ids(tokenizer, texts):
    ids = tf.function(tokenizer_graph(tokenizer))(tf.constant(texts))
    return (ids if ids.ragged_rank == 1 else ids.merge_dims(1, 2)).to_list()


@pytest.mark.parametrize("model", [pytest.param(RELEASED_MODEL, marks=needs_release)])
def test_all_official_cases_get_the_official_ids(model):
    tokenizer = Tokenizer.from_file(str(model))
    found = graph_ids(tokenizer, [case["text"] for case in CASES])
    assert len(CASES) == 158
    assert found == [case["ids"] for case in CASES]


def test_odd_texts_get_the_ids_of_the_host(tokenizer, odd_texts):
    assert graph_ids(tokenizer, odd_texts) == tokenizer.encode_batch(odd_texts)


@pytest.mark.parametrize("lower_case", [True, False])
def test_wordpiece_follows_case(wordpiece_file, odd_texts, lower_case):
    tokenizer = Tokenizer.from_file(str(wordpiece_file), lower_case)
    texts = [*odd_texts, "i" * 200, "i" * 201, "the " + "É" * 150]
    assert graph_ids(tokenizer, texts) == tokenizer.encode_batch(texts)


def test_sentencepiece_options_are_followed(sentencepiece_tokenizer, odd_texts):
    spec = dataclasses.replace(sentencepiece_tokenizer.spec, lower_case=False, strip_accents=False)
    tokenizer = Tokenizer(spec, sentencepiece_tokenizer.data, "cased.model")
    assert graph_ids(tokenizer, odd_texts) == tokenizer.encode_batch(odd_texts)
    assert tokenizer.encode_batch(odd_texts) != sentencepiece_tokenizer.encode_batch(odd_texts)


def test_every_character_of_the_basic_plane_up_to_the_hangul_is_normalised_as_by_the_host():
    # The exceptions are characters that Unicode 13 and 14 added.
    later = {*range(0x870, 0x8CA), 0x2C2F, 0x2C5F, *range(0xA7C0, 0xA7F5), *range(0xAB68, 0xAB6C)}
    texts = [f"a{chr(point)} Σ" for point in range(0xD7FF) if point not in later]
    found = text_graph.normalize(tf.constant(texts), True, True).numpy()
    assert [text.decode() for text in found] == [normalize(text, True, True) for text in texts]


def test_invalid_utf8_is_replaced(sentencepiece_tokenizer):
    found = tokenizer_graph(sentencepiece_tokenizer)(tf.constant([b"the \xff\xfe people"]))
    assert found.to_list() == [sentencepiece_tokenizer.encode("the \ufffd\ufffd people")]


def test_offsets_are_those_of_the_host(sentencepiece_tokenizer, odd_texts):
    columns = tokenizer_graph(sentencepiece_tokenizer).encode_with_offsets(tf.constant(odd_texts))
    compared = 0
    for text, ids, starts, ends in zip(odd_texts, *(column.to_list() for column in columns)):
        expected = sentencepiece_tokenizer.encode_with_offsets(text)
        assert ids == expected[0]
        if "\x01" not in text:
            assert (starts, ends) == expected[1:]
            compared += len(ids)
    assert compared > 10_000


@pytest.mark.parametrize("lower_case", [True, False])
def test_offsets_of_wordpiece_are_those_of_the_host(wordpiece_file, odd_texts, lower_case):
    tokenizer = Tokenizer.from_file(str(wordpiece_file), lower_case)
    chinese = ["子曰：「中國人！」", "中\u200b\u0301國，中人\u0301"]
    chinese += ["\u200b人 中国 50,人人", "豈中\uf900人"]
    texts = [*odd_texts, *chinese, "i" * 201 + "中ii" + "é" * 150, "", "  "]
    texts.append("un\u200baff\u0301\u200bable!")
    columns = tokenizer_graph(tokenizer).encode_with_offsets(tf.constant(texts))
    found = list(zip(*(column.to_list() for column in columns)))
    expected = [tokenizer.encode_with_offsets(text) for text in texts]
    assert found == expected
    assert sum(len(ids) for ids, _, _ in found) > 10_000
    text, (_, starts, ends) = chinese[0], found[len(odd_texts)]
    assert [text[a:b] for a, b in zip(starts, ends)] == [*text]
