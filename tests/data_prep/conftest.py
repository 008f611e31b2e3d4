# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A random corpus and its vocabulary."""

import gzip
import os
from pathlib import Path

import pytest

from tests.support.corpora import corpus, write_corpus_vocabulary

DATA = Path(os.environ.get("ALBERT_DATA_DIR", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    return write_corpus_vocabulary(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Path of a corpus of 40 documents."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(corpus())
    return str(path)


@pytest.fixture
def real_text(tmp_path):
    """Writes the first bytes of real text; returns the path."""

    def write(num_bytes):
        source = DATA / "text" / "books_62mb.txt.gz"
        if not source.exists():
            pytest.skip(f"needs {source}")
        path = tmp_path / "books.txt"
        with gzip.open(source, "rb") as f:
            path.write_bytes(f.read(num_bytes).rpartition(b"\n")[0] + b"\n")
        return str(path)

    return write


@pytest.fixture
def real_model():
    """Path of the English release's SentencePiece model."""
    return str(DATA / "spm" / "30k-clean.model")
