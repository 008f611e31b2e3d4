# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that sentence-transformers saved (tests/golden/hf_heads/make.py), and ours for it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentencepiece import SentencePieceProcessor

from albert_tf import TextEmbedder, load_pretrained
from albert_tf.errors import AlbertError
from albert_tf.huggingface.sentence_transformers import write_modules
from albert_tf.pretrained.locate import locate
from albert_tf.tasks.embedding.data import EmbeddingSpec
from tests.support.weights import GOLDEN

HEADS = GOLDEN / "hf_heads"
TEXTS = ["the unaffable resume", "50 running, wanted", "Wanted: the running résumé", "unwanted"]


def test_vectors_are_those_of_sentence_transformers():
    embedder = TextEmbedder.load(str(HEADS / "embedding"))
    assert embedder.task.spec == EmbeddingSpec(24, "mean", normalize=True)
    expected = np.load(HEADS / "embedding/expected.npz")["vectors"]
    np.testing.assert_allclose(embedder.embed(TEXTS), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "change", "fault"),
    [
        ("modules.json", lambda x: [*x[:2], {**x[2], "type": "a.Dense"}], "Dense"),
        ("modules.json", lambda x: [{**x[0], "path": "0_Transformer"}, *x[1:]], "same folder"),
        ("modules.json", lambda x: {"modules": x}, "no list of modules"),
        ("1_Pooling/config.json", lambda x: {"pooling_mode": "max"}, "max"),
    ],
)
def test_modules_that_we_do_not_have_are_refused(file, change, fault, tmp_path):
    shutil.copytree(HEADS / "embedding", folder := tmp_path / "model")
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(change(content)))
    with pytest.raises(AlbertError, match=fault):
        TextEmbedder.load(str(folder))


def test_sif_is_the_mean_that_its_files_describe(tmp_path):
    model, task = load_pretrained("albert_tiny_books"), {"normalize": False, "max_seq_length": 64}
    write_modules(str(tmp_path), {"pooling": "sif", **task}, model.config, model.tokenizer)
    words = json.loads((tmp_path / "WordWeights/config.json").read_text())
    layers = load_file(tmp_path / "WeightedLayerPooling/model.safetensors")["layer_weights"]
    ids = [model.tokenizer.cls_id, *model.tokenizer.encode(TEXTS[0]), model.tokenizer.sep_id]
    outputs = model.encoder({"input_word_ids": np.array([ids])})["encoder_outputs"]
    scores = SentencePieceProcessor(model_file=f"{locate('albert_tiny_books')}/spiece.model")
    weights = [0.001 / (0.001 + np.exp(scores.get_score(i))) for i in ids]
    np.testing.assert_allclose([words["word_weights"][words["vocab"][i]] for i in ids], weights)
    tokens = np.average([x[0] for x in outputs], axis=0, weights=layers[1:])
    expected = np.average(tokens, axis=0, weights=weights)
    np.testing.assert_allclose(model.embed(TEXTS[:1])[0], expected, rtol=0, atol=1e-5)
