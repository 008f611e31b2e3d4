# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds of records: determinism, resume, files in the way, bad text, with both runners."""

import dataclasses
import functools
import gzip
import os
import pathlib
from unittest import mock

import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data_prep import pretraining_build
from albert_tf.data_prep.beam_runner import BeamRunner
from albert_tf.data_prep.local_runner import LocalRunner
from albert_tf.data_prep.pretraining_build import _Build
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.verify_records import find_records, verify
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import files
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.corpora import SMALL, build, corpus, digests

ROOT = pathlib.Path(__file__).parents[2]
RUNNERS = {"local": LocalRunner, "beam": BeamRunner}


def modified(folder):
    return {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_the_number_of_workers_changes_nothing(tmp_path, vocabulary, monkeypatch):
    monkeypatch.setattr(pretraining_build, "_BUCKET_BYTES", 2000)
    path = tmp_path / "text.txt"
    path.write_text(corpus(300))
    options = PretrainingOptions(max_seq_length=32, dupe_factor=2, sentence_objective="nsp")
    one = build(str(path), vocabulary, tmp_path / "one", options)
    two_workers = functools.partial(LocalRunner, num_workers=2)
    build(str(path), vocabulary, tmp_path / "two", options, two_workers)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(one.shards) == 10
    other = dataclasses.replace(options, random_seed=1)
    three = build(str(path), vocabulary, tmp_path / "three", other)
    assert three.fingerprint() != one.fingerprint()


@pytest.mark.parametrize(
    "name", ["pretraining-00001-of-00002.tfrecord", "tokenizer.json", "vocab.txt"]
)
def test_other_files_are_not_overwritten(tmp_path, text, vocabulary, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(AlbertError, match=f"{name} already exists; .*overwrite"):
        build(text, vocabulary, tmp_path, num_shards=2)
    assert os.listdir(tmp_path) == [name] and (tmp_path / name).read_text() == "{}"
    build(text, vocabulary, tmp_path, num_shards=2, overwrite=True)
    assert verify(find_records(str(tmp_path))) == 0


def test_input_files_are_never_overwritten(tmp_path, text, vocabulary):
    shard = tmp_path / "pretraining-00001-of-00002.tfrecord"
    shard.write_text(corpus())
    for overwrite in (False, True):
        with pytest.raises(AlbertError, match=f"{shard} is also an input; give another path"):
            build(str(shard), vocabulary, tmp_path, num_shards=2, overwrite=overwrite)
    assert os.listdir(tmp_path) == [shard.name]
    # A shard of another build that has been replaced by text.
    build(text, vocabulary, tmp_path, num_shards=2, overwrite=True)
    shard.write_text(corpus(seed=1))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(AlbertError, match=f"{shard} is also an input"):
        build(str(shard), vocabulary, tmp_path, num_shards=1, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_second_build_at_the_same_time_is_refused_unless_records_are_complete(
    tmp_path, text, vocabulary, hold
):
    refused = pytest.raises(AlbertError, match=f"^{tmp_path}/out is in use by process ")
    with hold(tmp_path / "out"), refused:
        build(text, vocabulary, tmp_path / "out")
    assert not (tmp_path / "out/_build").exists()
    manifest = build(text, vocabulary, tmp_path / "out")
    with hold(tmp_path / "out"):
        assert build(text, vocabulary, tmp_path / "out") == manifest


@pytest.mark.parametrize("num_shards", [3, 2], ids=["other names", "same names"])
@pytest.mark.parametrize("killed_at", range(7))
def test_records_stay_until_the_new_ones_are_complete_and_then_give_way(
    tmp_path, text, vocabulary, monkeypatch, killed_at, num_shards
):
    other = dataclasses.replace(SMALL, random_seed=1)
    build(text, vocabulary, tmp_path / "expected", other, num_shards=2)
    folder = tmp_path / "out"
    build(text, vocabulary, folder, num_shards=num_shards)
    before = digests(folder)
    one_sentence = tmp_path / "short.txt"
    one_sentence.write_text("a b c\n")  # Gives no instance.
    with pytest.raises(AlbertError, match="gives no instance"):
        build(str(one_sentence), vocabulary, folder, num_shards=1, overwrite=True)
    assert digests(folder) == before

    steps, real = [], pretraining_build.removal

    def killed(change, *arguments):
        if len(steps) == killed_at:
            raise KeyboardInterrupt
        if not steps:
            assert {name: d for name, d in digests(folder).items() if name in before} == before
        steps.append(arguments)
        change(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for name in ("move", "remove_files"):
            patch.setattr(real, name, functools.partial(killed, getattr(real, name)))
        build(text, vocabulary, folder, other, num_shards=2, overwrite=True)
    # Another command finishes what was killed, before it is refused or goes on.
    with pytest.raises(AlbertError, match="set `overwrite`"):
        build(str(one_sentence), vocabulary, folder, num_shards=1)
    build(text, vocabulary, folder, other, num_shards=2, overwrite=True)
    assert digests(folder) == digests(tmp_path / "expected")


def test_a_working_folder_of_somebody_else_is_refused(tmp_path, text, vocabulary):
    mine = tmp_path / "out/_build/mine"
    mine.mkdir(parents=True)
    with pytest.raises(AlbertError, match="_build holds files, but no plan of a build"):
        build(text, vocabulary, tmp_path / "out")
    assert mine.exists()


def test_overwriting_leaves_nothing_of_the_other_build(tmp_path, text, vocabulary, monkeypatch):
    other = dataclasses.replace(SMALL, random_seed=1)
    build(text, vocabulary, tmp_path / "expected", other, num_shards=2)
    build(text, vocabulary, tmp_path / "finished", num_shards=3)

    def fail(*_):
        raise StoppedError("killed")

    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(pretraining_build, "summarize", fail)
        build(text, vocabulary, tmp_path / "unfinished", num_shards=3)
    for name in ("finished", "unfinished"):
        with pytest.raises(AlbertError, match="set `overwrite`"):
            build(text, vocabulary, tmp_path / name, other, num_shards=2)
        build(text, vocabulary, tmp_path / name, other, num_shards=2, overwrite=True)
        assert digests(tmp_path / name) == digests(tmp_path / "expected")
        # Complete records are left alone, even with `overwrite`.
        before = (tmp_path / name / "manifest.json").stat().st_mtime_ns
        build(text, vocabulary, tmp_path / name, other, num_shards=2, overwrite=True)
        assert (tmp_path / name / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_a_finished_build_is_left_alone_and_another_is_refused(tmp_path, text, vocabulary, runner):
    first = build(text, vocabulary, tmp_path)
    times = modified(tmp_path)
    other_names = files.expand_globs(f"{os.path.dirname(text)}/./{os.path.basename(text)},{text}")
    assert build(other_names, vocabulary, f"{tmp_path}/", runner=runner) == first
    assert modified(tmp_path) == times
    with pytest.raises(AlbertError, match="holds records of another"):
        build(text, vocabulary, tmp_path, dataclasses.replace(SMALL, dupe_factor=4), runner)
    assert modified(tmp_path) == times


def test_complete_records_leave_an_unfinished_build_alone(tmp_path, text, vocabulary, monkeypatch):
    manifest = build(text, vocabulary, tmp_path)
    other = dataclasses.replace(SMALL, random_seed=1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Manifest, "save", mock.Mock(side_effect=KeyboardInterrupt))
        build(text, vocabulary, tmp_path, other, overwrite=True)
    assert build(text, vocabulary, tmp_path) == manifest
    shards = list((tmp_path / "_build/records").glob("*.tfrecord"))
    assert len(shards) == 10
    written = shards[0].stat().st_mtime_ns
    assert build(text, vocabulary, tmp_path, other, overwrite=True) != manifest
    assert (tmp_path / shards[0].name).stat().st_mtime_ns == written


def test_a_build_that_is_killed_as_it_ends_leaves_nothing(tmp_path, text, vocabulary, monkeypatch):
    remove = pretraining_build.removal.remove_temporary

    def killed(path):
        if "_build.tmp-" in path:
            raise KeyboardInterrupt
        remove(path)

    expected = build(text, vocabulary, tmp_path / "expected", num_shards=2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pretraining_build.removal, "remove_temporary", killed)
        build(text, vocabulary, tmp_path / "out", num_shards=2)
    (left,) = (tmp_path / "out").glob("_build.tmp-*")
    assert (left / "buckets.json").exists()
    assert build(text, vocabulary, tmp_path / "out", num_shards=2) == expected
    assert digests(tmp_path / "out") == digests(tmp_path / "expected")


def test_the_vocabulary_that_is_read_is_never_overwritten(tmp_path, text, vocabulary):
    pieces = pathlib.Path(vocabulary).read_text()
    (tmp_path / "vocab.txt").write_text(pieces)
    build(text, str(tmp_path / "vocab.txt"), tmp_path, overwrite=True)  # The same bytes.
    (tmp_path / "tokenizer.json").write_text("{}")
    tokenizer = Tokenizer.from_file(str(tmp_path / "vocab.txt"))
    tokenizer.source = str(tmp_path / "tokenizer.json")  # As of a tokenizer of Hugging Face.
    with pytest.raises(AlbertError, match=r"tokenizer\.json is also an input"):
        _Build([text], tokenizer, str(tmp_path), SMALL).check_files_in_the_way(True)


def test_text_whose_sentences_do_not_fit_is_refused(tmp_path, vocabulary):
    path = tmp_path / "text.txt"
    path.write_text("w1 w2 w3 w4\nw5 w6 w7 w8\n\n" * 20)
    options = PretrainingOptions(max_seq_length=8, whole_sentences=True, short_seq_prob=0.0)
    with pytest.raises(AlbertError, match="two that fit into `max_seq_length` together"):
        build(str(path), vocabulary, tmp_path / "out", options)


def test_missing_shards_of_a_finished_build_are_built_again(tmp_path, text, vocabulary):
    build(text, vocabulary, tmp_path)
    expected = digests(tmp_path)
    next(tmp_path.glob("*.tfrecord")).unlink()
    build(text, vocabulary, tmp_path)
    assert digests(tmp_path) == expected


def test_a_build_that_failed_continues_with_either_runner(tmp_path, text, vocabulary, monkeypatch):
    write_shard = records.write_shard

    def fail(path, *passes):
        if "pretraining-00004" in path:
            raise AlbertError(f"{path} cannot be written: no.")
        return write_shard(path, *passes)

    for runner in RUNNERS.values():
        with monkeypatch.context() as patch:
            patch.setattr(records, "write_shard", fail)
            with pytest.raises(AlbertError, match=r"-00004-.* cannot be written: [^\[]*$"):
                build(text, vocabulary, tmp_path / "out", runner=runner)
    assert os.listdir(tmp_path / "out") == ["_build"]
    name = "pretraining-00000-of-00010.tfrecord"
    written = (tmp_path / "out/_build/records" / name).stat().st_mtime_ns
    build(text, vocabulary, tmp_path / "out", runner=BeamRunner)
    build(text, vocabulary, tmp_path / "whole")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    assert (tmp_path / "out" / name).stat().st_mtime_ns == written


#: Content of the text, number of shards, and the error, by kind; for some kinds also with Beam.
BAD_TEXT = {
    "blank": (b"\n \n\n", None, "corpus is empty"),
    "latin": (b"w1 w2\nw3\ncaf\xe9\n", None, r"/bad.txt:3: not UTF-8 \(byte 0xe9\); [^\[]*$"),
    "single": (b"w1 w2\n\nw3 w4\n", None, "gives no instance: 2 documents, 2 sentences"),
    "truncated": (gzip.compress(corpus().encode())[:-200], None, "bad.txt.gz cannot be decomp"),
    "small": (
        b"w1 w2\nw3\n\nw4 w5\nw6\n", 3, "fill only 2 of 3 shards; ask for at most 2"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("runner", "kind"),
    [
        *(("local", kind) for kind in BAD_TEXT),
        *(("beam", kind) for kind in ("blank", "latin", "single", "small")),
    ],
)
def test_bad_text_is_reported_and_leaves_nothing(tmp_path, vocabulary, caplog, runner, kind):
    content, num_shards, message = BAD_TEXT[kind]
    path = tmp_path / ("bad.txt.gz" if kind == "truncated" else "bad.txt")
    path.write_bytes(content)
    with pytest.raises(AlbertError, match=message):
        build(
            str(path), vocabulary, tmp_path / "out", runner=RUNNERS[runner], num_shards=num_shards
        )
    assert not (tmp_path / "out").exists()
    assert "Traceback" not in caplog.text


def test_a_small_corpus_gets_fewer_shards(tmp_path, vocabulary):
    (tmp_path / "text.txt").write_text(corpus(3))
    assert len(build(f"{tmp_path}/text.txt", vocabulary, tmp_path / "out").shards) == 3
