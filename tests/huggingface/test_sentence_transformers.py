# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that sentence-transformers saved (tests/golden/hf_heads/make.py), and ours for it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from albert_tf import TextEmbedder
from albert_tf.errors import AlbertError
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
