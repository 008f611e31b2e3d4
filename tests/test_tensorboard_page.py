# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The code of docs/tensorboard.md."""

import re

import pytest
from google.protobuf import text_format
from tensorboard.plugins.projector import ProjectorConfig

import albert_tf
from tests.support.events import PAGE


@pytest.mark.slow
def test_the_projector_gets_a_vector_and_a_piece_in_each_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.M | re.S)
    names = {}
    exec(compile(block, str(PAGE), "exec"), names)
    folder = tmp_path / "runs/vocabulary"
    config = text_format.Parse((folder / "projector_config.pbtxt").read_text(), ProjectorConfig())
    (embedding,) = config.embeddings
    vectors = (folder / embedding.tensor_path).read_text().splitlines()
    pieces = (folder / embedding.metadata_path).read_text("utf-8").split("\n")[:-1]
    model = albert_tf.load_pretrained("albert_tiny_books")
    assert len(vectors) == len(pieces) == model.config.vocab_size
    assert pieces[model.tokenizer.mask_id] == "[MASK]" and "\t" not in pieces[0]
    table = names["table"]
    found = [float(number) for number in vectors[77].split("\t")]
    assert found == pytest.approx(table[77].tolist(), rel=1e-4)
