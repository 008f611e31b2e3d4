# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.record_cache import cached_records
from tests.support.builders import write_tokenizer
from tests.support.numbered_records import LABELS, encode_labels


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Two that differ in one piece."""
    return [write_tokenizer(tmp_path_factory.mktemp("vocabulary"), letter) for letter in "ab"]


@pytest.fixture
def cache(tmp_path, tokenizers):
    """Asks a cache for the numbers 0 to 9; returns the path and whether they were encoded."""

    def ask(tokenizer=tokenizers[0], fail_after=None, **key):
        calls = []

        def encode(statistics):
            calls.append(True)
            for i in range(10):
                if i == fail_after:
                    raise KeyboardInterrupt
                yield from encode_labels([i])
            statistics["examples"] = 10

        key = {"length": 8, **key}
        path = cached_records(str(tmp_path), "classification", key, LABELS, tokenizer, encode)
        return Path(path), bool(calls)

    return ask


def test_records_are_written_once(cache):
    path, is_new = cache()
    assert is_new
    assert cache() == (path, False)
    assert len(list(records.read_examples(str(path)))) == 10
    assert Manifest.load(str(path.parent)).statistics == {"examples": 10}


def test_a_stale_cache_is_not_used(cache, tokenizers):
    path, _ = cache()
    for other, is_new in (cache(length=9), cache(content="x"), cache(tokenizers[1])):
        assert is_new and other != path


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "manifest"])
def test_damaged_records_are_reported_and_written_again(cache, capsys, damage):
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


def test_interrupted_records_are_written_again(cache):
    with pytest.raises(KeyboardInterrupt):
        cache(fail_after=5)
    path, is_new = cache()
    assert is_new
    assert len(list(records.read_examples(str(path)))) == 10
