# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The preprocessor SavedModel fulfils TF-Hub's contract, with the features of fine-tuning."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from albert_tf.errors import AlbertError
from albert_tf.export.hub import preprocessor_export
from albert_tf.export.saved_model import write_saved_model
from albert_tf.keras2 import keras
from albert_tf.scripts import export_tfhub
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.tables import TextExample
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import tiny_config
from tests.support.releases import write_release
from tests.tokenization.conftest import WORDPIECES

NAMES = {"input_word_ids", "input_mask", "input_type_ids"}


def export(tokenizer, path, seq_length=16):
    write_saved_model(preprocessor_export(tokenizer, seq_length), str(path))
    return str(path)


@pytest.fixture(
    scope="module", params=["sentencepiece", pytest.param("wordpiece", marks=pytest.mark.slow)]
)
def saved(request, tmp_path_factory):
    """The host's tokenizer, and its preprocessor, saved and loaded."""
    tokenizer = request.getfixturevalue(f"{request.param}_tokenizer")
    return tokenizer, hub.load(export(tokenizer, tmp_path_factory.mktemp("export") / "saved"))


def expected_rows(tokenizer, firsts, seconds, size):
    """Returns the features of fine-tuning, padded to a size."""
    examples = [TextExample("", a, b, None, "") for a, b in zip(firsts, seconds)]
    config = tiny_config(tokenizer.vocab_size, max_position_embeddings=size)
    task = TextClassificationTask(config, tokenizer, ClassificationSpec(("x", "y"), size))
    batch = task.encode(examples, labelled=False).source.batch(range(len(examples)), size)
    return {name: batch[name] for name in NAMES}


def pairs_of(tokenizer, texts):
    """Returns first texts and second texts, none of which is empty."""
    pairs = [(a, b) for a, b in zip(texts, texts[3:]) if tokenizer.encode(b)][:200]
    return zip(*pairs)


def assert_equal(found, expected):
    assert set(found) == NAMES
    for name, tensor in found.items():
        assert tensor.dtype == tf.int32
        np.testing.assert_array_equal(tensor, expected[name])


def test_sentences_become_the_features_of_fine_tuning(saved, odd_texts):
    tokenizer, preprocessor = saved
    texts = odd_texts[:200]
    expected = expected_rows(tokenizer, texts, [None] * len(texts), 16)
    assert_equal(preprocessor(texts), expected)
    serve = preprocessor.signatures["serving_default"]
    for call in (preprocessor, serve):
        assert_equal(call(sentences=tf.constant(texts)), expected)
    expected = expected_rows(tokenizer, texts, [None] * len(texts), 9)
    for length in (9, tf.constant(9)):
        assert_equal(preprocessor(texts, seq_length=length), expected)


@pytest.mark.usefixtures("self_check_here")
def test_the_preprocessor_of_a_release_has_the_features_of_fine_tuning(
    run_script, odd_texts, tmp_path
):
    release = write_release(tmp_path / "release", "vocab_zh.txt", WORDPIECES)
    path = tmp_path / "saved"
    tokenizer = Tokenizer.from_file(str(release / "vocab_zh.txt"))
    done = run_script(
        export_tfhub, f"--albert_directory={release}/model.ckpt-best",
        "--export_type=preprocessing", "--max_seq_length=9", f"--export_path={path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    preprocessor = hub.load(str(path))
    firsts, _ = pairs_of(tokenizer, odd_texts)
    assert_equal(preprocessor(firsts), expected_rows(tokenizer, firsts, [None] * len(firsts), 9))
    assert preprocessor.tokenize(list(firsts)).ragged_rank == 2


@pytest.mark.parametrize("seq_length", [7, pytest.param(10, marks=pytest.mark.slow), 64])
def test_pairs_are_truncated_as_in_fine_tuning(saved, odd_texts, seq_length):
    tokenizer, preprocessor = saved
    firsts, seconds = pairs_of(tokenizer, odd_texts)
    tokens = [preprocessor.tokenize(list(texts)) for texts in (firsts, seconds)]
    expected = expected_rows(tokenizer, firsts, seconds, seq_length)
    assert_equal(
        preprocessor.bert_pack_inputs(tokens, seq_length=tf.constant(seq_length)), expected
    )
    # Also as a Python number, and with the pieces of a word not grouped.
    flat = [t if t.ragged_rank == 1 else t.merge_dims(1, 2) for t in tokens]
    assert_equal(preprocessor.bert_pack_inputs(flat, seq_length=seq_length), expected)
    alone = expected_rows(tokenizer, firsts, [None] * len(firsts), seq_length)
    assert_equal(preprocessor.bert_pack_inputs(tokens[:1], seq_length=seq_length), alone)


def test_an_empty_second_segment_keeps_its_separator(saved):
    tokenizer, preprocessor = saved
    tokens = [preprocessor.tokenize(["the people"]), preprocessor.tokenize([""])]
    found = preprocessor.bert_pack_inputs(tokens)
    assert found["input_word_ids"].shape == [1, 16]
    ids = [*tokenizer.encode("the people"), tokenizer.sep_id, tokenizer.sep_id]
    np.testing.assert_array_equal(found["input_word_ids"][0, 1 : len(ids) + 1], ids)


def test_keras_layers_wrap_all_parts_with_static_lengths(saved):
    _, preprocessor = saved
    sentences = keras.Input([], dtype=tf.string)
    whole = hub.KerasLayer(preprocessor)
    tokenize = hub.KerasLayer(preprocessor.tokenize)
    pack = hub.KerasLayer(preprocessor.bert_pack_inputs, arguments={"seq_length": 12})
    assert {t.shape.as_list()[1] for t in whole(sentences).values()} == {16}
    packed = pack([tokenize(sentences), tokenize(sentences)])
    model = keras.Model(sentences, packed)
    assert model.predict(tf.constant(["the", "people"]))["input_word_ids"].shape == (2, 12)
    assert not whole.weights and not tokenize.weights and not pack.weights
    assert not whole.losses


def test_special_tokens_are_returned_eagerly_and_inside_a_graph(saved):
    tokenizer, preprocessor = saved
    special = preprocessor.tokenize.get_special_tokens_dict
    expected = {
        "vocab_size": tokenizer.vocab_size,
        "start_of_sequence_id": tokenizer.cls_id,
        "end_of_segment_id": tokenizer.sep_id,
        "padding_id": tokenizer.pad_id,
        "mask_id": tokenizer.mask_id,
    }
    for found in (special(), tf.function(lambda: special())()):
        assert {name: int(value) for name, value in found.items()} == expected
        assert all(value.dtype == tf.int32 and value.shape == [] for value in found.values())


def test_a_length_without_room_for_text_is_refused(sentencepiece_tokenizer):
    with pytest.raises(AlbertError, match="seq_length=4 must be at least 5"):
        preprocessor_export(sentencepiece_tokenizer, 4)
