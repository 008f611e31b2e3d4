# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The code blocks of docs/python.md run, in their order and in one namespace."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.support.pages import ROOT, run_python_blocks

PAGE = ROOT / "docs/python.md"


def run_page(last_heading=None):
    """Runs the code blocks up to a heading, by default all."""
    text = PAGE.read_text("utf-8")
    if last_heading:
        text, found, _ = text.partition(f"\n## {last_heading}\n")
        assert found
    return run_python_blocks(text)


def test_the_blocks_about_pretrained_models_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = run_page("Train a classifier")
    assert names["vectors"].shape == (4, 256)
    assert len(names["search"]("A ship at sea.")) == 2
    assert len(re.findall(r"^\('\w+',\) 0\.\d{3} It was the \w+ of times\.$", printed, re.M)) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_all_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = run_page()
    assert names["classifier"].labels == ("Austen", "Melville")
    found = names["classifier"].predict(["The ship sailed on the sea.", "She danced at the ball."])
    assert [classified.label for classified in found] == ["Melville", "Austen"]
    texts = [row["sentence"] for row in names["train"]]
    classify = tf.saved_model.load("exports/authors")
    np.testing.assert_allclose(
        classify(texts)["probabilities"], names["classifier"].probabilities(texts), atol=1e-4
    )
    assert np.isfinite(names["regressor"].predict(["A book."])).all()
    assert 0 < names["found"].probability <= 1
    assert len(names["chooser"].choose(["a", "b", "c"], "Which?").probabilities) == 3
    comment = re.search(r"print\(error\)  # (.*)", PAGE.read_text("utf-8"))[1]
    assert printed.splitlines().count(comment) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "exports"}
