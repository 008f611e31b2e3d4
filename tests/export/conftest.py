# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A release to export; small vocabularies of both kinds; texts that are hard to tokenize."""

from __future__ import annotations

import pytest

from albert_tf.keras2 import keras
from albert_tf.scripts import export_tfhub
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.releases import write_release
from tests.tokenization.conftest import (  # noqa: F401
    odd_texts,
    sentencepiece_tokenizer,
    small_model,
    wordpiece_file,
)


@pytest.fixture(scope="session")
def wordpiece_tokenizer(request) -> Tokenizer:
    return Tokenizer.from_file(str(request.getfixturevalue("wordpiece_file")))


@pytest.fixture(params=["sentencepiece", "wordpiece"])
def tokenizer(request) -> Tokenizer:
    return request.getfixturevalue(f"{request.param}_tokenizer")


@pytest.fixture
def release(tmp_path):
    return write_release(tmp_path / "release", "vocab_zh.txt")


@pytest.fixture
def export(run_script):
    """Runs export_tfhub.py on a folder, and returns the path of the export."""

    def run(folder, path, **flags):
        flags = {"albert_directory": folder, "export_path": path, **flags}
        run_script(export_tfhub, *(f"--{name}={value}" for name, value in flags.items())).ok()
        return str(path)

    return run


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(7)
