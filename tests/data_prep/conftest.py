# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A random corpus and its vocabulary."""

import gzip

import pytest

from tests.support.corpora import corpus, write_corpus_vocabulary
from tests.support.real_data import real_data


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
        path = tmp_path / "books.txt"
        with gzip.open(real_data("text/books_62mb.txt.gz"), "rb") as f:
            path.write_bytes(f.read(num_bytes).rpartition(b"\n")[0] + b"\n")
        return str(path)

    return write


@pytest.fixture
def real_model():
    """Path of the English release's SentencePiece model."""
    return str(real_data("spm/30k-clean.model"))
