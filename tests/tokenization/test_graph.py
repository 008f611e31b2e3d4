# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer in the graph has the ids of the host's."""

import dataclasses

import pytest
import tensorflow as tf

from albert_tf.tokenization import graph
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.tokenizer import Tokenizer


def graph_ids(tokenizer, texts):
    ids = tf.function(tokenizer.graph())(tf.constant(texts))
    return (ids if ids.ragged_rank == 1 else ids.merge_dims(1, 2)).to_list()


def test_odd_texts_get_the_ids_of_the_host(tokenizer, odd_texts):
    assert graph_ids(tokenizer, odd_texts) == tokenizer.encode_batch(odd_texts)


@pytest.mark.parametrize("lower_case", [True, False])
def test_wordpiece_follows_case(wordpiece_file, odd_texts, lower_case):
    tokenizer = Tokenizer.from_file(str(wordpiece_file), lower_case)
    texts = [*odd_texts, "i" * 200, "i" * 201, "the " + "É" * 150, "i" * 201 + "中ii" + "é" * 150]
    texts += ["子曰：「中國人！」", "中\u200b\u0301國，中人\u0301", "\u200b人 中国 50,人人"]
    texts += ["豈中\uf900人", "un\u200baff\u0301\u200bable!", ""]
    assert graph_ids(tokenizer, texts) == tokenizer.encode_batch(texts)


def test_sentencepiece_options_are_followed(sentencepiece_tokenizer, odd_texts):
    spec = dataclasses.replace(sentencepiece_tokenizer.spec, lower_case=False, strip_accents=False)
    tokenizer = Tokenizer(spec, sentencepiece_tokenizer.data, "cased.model")
    odd_texts = [*odd_texts, "cafe\x7f\u0301 e\u200b\u0301"]
    assert graph_ids(tokenizer, odd_texts) == tokenizer.encode_batch(odd_texts)
    assert tokenizer.encode_batch(odd_texts) != sentencepiece_tokenizer.encode_batch(odd_texts)


def test_every_character_of_the_basic_plane_up_to_the_hangul_is_normalised_as_by_the_host():
    # The exceptions are characters that Unicode 13 and 14 added.
    later = {*range(0x870, 0x8CA), 0x2C2F, 0x2C5F, *range(0xA7C0, 0xA7F5), *range(0xAB68, 0xAB6C)}
    texts = [f"a{chr(point)} Σ" for point in range(0xD7FF) if point not in later]
    found = graph.normalize(tf.constant(texts), True, True).numpy()
    assert [text.decode() for text in found] == [normalize(text, True, True) for text in texts]


def test_invalid_utf8_is_replaced(sentencepiece_tokenizer):
    found = sentencepiece_tokenizer.graph()(tf.constant([b"the \xff\xfe people"]))
    assert found.to_list() == [sentencepiece_tokenizer.encode("the \ufffd\ufffd people")]
