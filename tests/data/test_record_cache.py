# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.record_cache import cached_records
from albert_tf.tokenization.tokenizer import Tokenizer

FEATURES = {"label_ids": records.FeatureSpec("int64")}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Two that differ in one piece."""
    found = []
    for letter in "ab":
        path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
        path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", letter]))
        found.append(Tokenizer.from_file(str(path)))
    return found


@pytest.fixture
def cache(tmp_path, tokenizers):
    """Asks a cache for the numbers 0 to 9; gives the path and whether they had to be made."""

    def ask(tokenizer=tokenizers[0], fail_after=None, **key):
        made = []

        def encode(statistics):
            made.append(True)
            for i in range(10):
                if i == fail_after:
                    raise KeyboardInterrupt
                yield from records.encode_examples({"label_ids": np.array([i])}, FEATURES)
            statistics["examples"] = 10

        key = {"length": 8, **key}
        path = cached_records(str(tmp_path), "classification", key, FEATURES, tokenizer, encode)
        return Path(path), bool(made)

    return ask


def test_records_are_made_once(cache):
    path, made = cache()
    assert made
    assert cache() == (path, False)
    assert len(list(records.read_examples(str(path)))) == 10
    assert Manifest.load(str(path.parent)).statistics == {"examples": 10}


def test_a_stale_cache_is_not_used(cache, tokenizers):
    path, _ = cache()
    for other in (cache(length=9), cache(content="x"), cache(tokenizers[1])):
        assert other[1]
        assert other[0] != path


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "manifest"])
def test_damaged_records_are_announced_and_made_again(cache, capsys, damage):
    path, _ = cache()
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "manifest":
        (path.parent / "manifest.json").write_text("{")
    else:
        path.write_bytes(data[:-3] if damage == "cut" else data[:-9] + b"!" + data[-8:])
    assert cache() == (path, True)
    assert path.read_bytes() == data
    assert f"The cached records {path} are damaged" in capsys.readouterr().out
    assert cache() == (path, False)


def test_records_whose_making_was_interrupted_are_made_again(cache):
    with pytest.raises(KeyboardInterrupt):
        cache(fail_after=5)
    path, made = cache()
    assert made
    assert len(list(records.read_examples(str(path)))) == 10
