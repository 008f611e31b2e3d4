# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import copy
import itertools
import warnings

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.keras2 import keras
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.weights.load import LoadReport
from albert_tf.weights.pretrained_model import PretrainedModel, _encode_parts, load_pretrained
from tests.support.builders import tiny_config, write_tokenizer
from tests.support.forked import assert_refused_in_a_fork

WORDS = [f"w{i}" for i in range(30)] + ["##x", "."]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of words with random weights, 16 positions and no dropout."""
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("words"), WORDS)
    keras.utils.set_random_seed(3)
    config = tiny_config(
        tokenizer.vocab_size,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.5,
    )
    model = PretrainedModel(config)
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def books():
    """The bundled model."""
    return load_pretrained("albert_tiny_books")


def outputs(model, ids, **more):
    """Calls the model with one sequence."""
    return {k: v[0].numpy() for k, v in model({"input_word_ids": np.array([ids]), **more}).items()}


def ids_of(model, text):
    tokenizer = model.tokenizer
    return [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_of_batches_are_those_of_single_texts_in_their_order(pooling, model):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[:30], n)) for n in [3, 14, 0, 5, 13]]
    vectors = model.embed(texts, pooling)
    assert (vectors.dtype, vectors.shape) == (np.float32, (5, 16))
    for text, vector in zip(texts, vectors):
        sequence = outputs(model, ids_of(model, text))["sequence_output"]
        expected = sequence.mean(axis=0) if pooling == "mean" else sequence[0]
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01
    assert model.embed([], normalize=True).shape == (0, 16)
    alone = model.embed(texts, pooling, batch_size=np.int64(1), normalize=True)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, rtol=1e-5)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(alone * lengths, vectors, atol=1e-5)


def test_rare_pieces_count_more_and_the_first_layer_as_much_as_the_last(books):
    ids = ids_of(books, text := "the whale swam round the ship")
    layers = books.encoder({"input_word_ids": np.array([ids])})["encoder_outputs"]
    pieces = ModelProto.FromString(books.tokenizer.data).pieces
    weights = np.array([[1e-3 / (1e-3 + np.exp(pieces[i].score))] for i in ids])
    assert weights[0] < 1e-3 < 0.01 < weights[1] < 0.1 < 0.9 < weights[2]
    expected = (weights * (layers[0] + layers[-1])[0].numpy() / 2).sum(0) / weights.sum()
    np.testing.assert_allclose(books.embed([text])[0], expected, atol=1e-5)


def test_long_texts_are_cut_with_one_warning(model):
    words = WORDS[:20]
    with pytest.warns(UserWarning, match="2 of 3 texts are longer than the model's 16 pos") as seen:
        vectors = model.embed([" ".join(words), "w1", " ".join(words[:15])])
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.embed([" ".join(words[:14])])
    np.testing.assert_allclose(vectors[[0, 2]], expected[[0, 0]], atol=1e-6)


def test_the_best_fillings_of_all_masks_come_first(model):
    tokenizer = model.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode("w1"), tokenizer.mask_id, *tokenizer.encode("w2 w3")]
    ids += [tokenizer.mask_id, tokenizer.sep_id]
    log_probs = log_softmax(outputs(model, ids)["mlm_logits"])[[2, 5]]
    allowed = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids]
    pairs = itertools.product(allowed, allowed)
    scores = {pair: float(log_probs[0, pair[0]] + log_probs[1, pair[1]]) for pair in pairs}
    best = sorted(scores, key=scores.get, reverse=True)[:7]
    found = model.fill_mask("w1 [MASK] w2 w3 [MASK]", top_k=7)
    assert [f.score for f in found] == pytest.approx(
        np.exp([scores[pair] for pair in best]), rel=1e-4
    )
    words = [[tokenizer.id_to_piece(i).removeprefix("##") for i in pair] for pair in best]
    assert [list(f.words) for f in found] == words
    everything = model.fill_mask("[MASK]", top_k=1000)
    assert sorted(f.words[0] for f in everything) == sorted(w.removeprefix("##") for w in WORDS)
    texts = {f.words[0]: f.text for f in model.fill_mask("w1 [MASK] w2", top_k=1000)}
    assert texts["w7"] == "w1 w7 w2"
    assert texts["x"] == "w1x w2"
    masked = ["w1 [MASK] w2", "[MASK]"]
    assert model.fill_mask(masked, 3) == [model.fill_mask(text, 3) for text in masked]
    assert model.fill_mask([]) == []


def test_a_mask_is_filled_as_in_a_text_of_its_pieces(books):
    pieces = map(
        books.tokenizer.id_to_piece, _encode_parts(books.tokenizer, ["so [", ". And", "ing"])
    )
    assert " ".join(pieces).endswith("[MASK] . ▁and [MASK] ing")
    found = books.fill_mask("It was the [MASK] of times.", top_k=3)
    assert [f.text for f in found] == [f"It was the {f.words[0]} of times." for f in found]
    assert {f.text[:8] for f in books.fill_mask("He look[MASK].", top_k=2)} == {"He look "}


def test_bad_arguments_are_refused(model):
    for call, message in (
        (lambda: model.embed("w1"), "The texts must be a list of strings, not 'w1'"),
        (lambda: model.embed(["w1"], "max"), "pooling='max' is not one of sif, mean, cls"),
        (lambda: model.fill_mask("w1"), r"There is no \[MASK\] in the text 'w1'"),
        (lambda: model.fill_mask("[MASK]", 0), "`top_k`=0 must be an integer from 1"),
        (lambda: model.fill_mask("[MASK]", True), "`top_k`=True must be an integer"),
        (lambda: model.embed(["w1"], batch_size=0), "`batch_size`=0 must be an integer"),
        (lambda: model.fill_mask("[MASK]" + " w1" * 14), "17 pieces .* at most 16; shorten it"),
        (lambda: model.fill_mask(["[MASK]", 3]), "Number 1 .* of the texts must be a string"),
    ):
        with pytest.raises(AlbertError, match=message):
            call()


def test_a_model_without_vocabulary_or_head_says_so(model):
    other = PretrainedModel(model.config)
    with pytest.raises(AlbertError, match="has no vocabulary, so it cannot read texts"):
        other.embed(["w1"])
    other.tokenizer = model.tokenizer
    other.load_report = LoadReport("runs/mine", (), ("cls/predictions/output_bias",), ())
    assert other.embed(["w1"]).shape == (1, 16)
    with pytest.raises(AlbertError, match="runs/mine has no masked-language-model head"):
        other.fill_mask("[MASK]")


def test_a_copy_of_it_is_a_pretrainer_with_its_weights_that_wants_a_tokenizer(model):
    vectors = model.embed(["w1 w2"])
    copied = copy.deepcopy(model)
    assert isinstance(copied, AlbertPretrainer) and copied.tokenizer is None
    copied.tokenizer = model.tokenizer
    np.testing.assert_array_equal(copied.embed(["w1 w2"]), vectors)


def test_a_model_in_a_forked_process_is_one_sentence(model):
    assert_refused_in_a_fork(
        lambda: model.embed(["w1"]),
        lambda: model.fill_mask("w1 [MASK]"),
        lambda: outputs(model, [2, 3]),
        lambda: load_pretrained("albert_tiny_books"),
    )
