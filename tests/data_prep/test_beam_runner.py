# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Apache Beam: the bytes of the local runner; errors of pipelines and their options."""

import functools
import gzip
import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.data_prep import beam_runner, create_pretraining_data, documents, pretraining_build
from albert_tf.data_prep.beam_runner import BeamRunner
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.verify_records import find_records, verify
from albert_tf.errors import AlbertError, StoppedError
from tests.support.cases import slow
from tests.support.corpora import build, corpus, digests

TWO_PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


@pytest.fixture
def texts(tmp_path):
    """Text files of different sizes: plain, compressed, without text, ending in a document."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "0.txt").write_text(corpus(60))
    (folder / "1.txt.gz").write_bytes(gzip.compress(corpus(30, seed=1).encode()))
    (folder / "2.txt").write_text("\n \n")
    (folder / "3.txt").write_text(corpus(2, sentences=90, seed=2).rstrip("\n") + "\n")
    (folder / "4.txt").write_text("w1 w2\n\n" + corpus(20, seed=3))
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.fixture
def small_parts(monkeypatch):
    """Several buckets a shard, several parts of each and long documents, as in a large corpus."""
    monkeypatch.setattr(pretraining_build, "_BUCKET_BYTES", 1500)
    monkeypatch.setattr(documents, "_BLOCK_CHARACTERS", 700)
    monkeypatch.setattr(documents, "MAX_DOCUMENT_CHARACTERS", 500)


@pytest.mark.parametrize(
    "options",
    [
        {"dupe_factor": 2, "sentence_objective": "nsp"},
        {"record_format": "compact", "dupe_factor": 4, "random_seed": 3},
        *slow(
            {"dupe_factor": 1, "random_seed": 7, "max_seq_length": 64},
            {"dupe_factor": 3},
            {"dupe_factor": 2, "sentence_objective": "none", "random_seed": 1},
            {"record_format": "compact"},
        ),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_shards_and_manifest_equal_those_of_the_local_runner(
    tmp_path, texts, vocabulary, small_parts, options
):
    options = PretrainingOptions(**{"max_seq_length": 32, **options})
    manifest = build(texts, vocabulary, tmp_path / "local", options, num_shards=4)
    assert manifest.statistics["corpus"]["documents"] > 60 + 30 + 2 + 21
    assert build(texts, vocabulary, tmp_path / "beam", options, BeamRunner, num_shards=4)
    expected = digests(tmp_path / "local")
    assert len(expected) == 4 + len(["manifest.json", "tokenizer.json", "vocab.txt"])
    assert digests(tmp_path / "beam") == expected
    assert verify(find_records(str(tmp_path / "beam"))) == 0


def test_the_script_builds_the_same_with_both_runners(tmp_path, texts, vocabulary, run_script):
    for runner, flags in (("local", []), ("beam", ["--beam_options="])):
        result = run_script(
            create_pretraining_data,
            f"--input_file={','.join(texts)}",
            f"--vocab_file={vocabulary}",
            f"--output_dir={tmp_path / runner}",
            *("--max_seq_length=32", "--dupe_factor=2", "--num_shards=4", *flags),
        ).ok()
        assert "instances in 4 shards" in result.stdout and "masked_share" in result.stdout
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")
    assert "tokenize 5 files with Beam's DirectRunner" in result.stderr
    assert "apache_beam" not in result.stderr  # Beam's logs are not shown.


@pytest.mark.smoke
def test_a_corpus_in_ram_is_built(vocabulary, texts):
    root = "ram://beam"
    tf.io.gfile.makedirs(f"{root}/texts")
    for path in texts:
        tf.io.gfile.copy(path, f"{root}/texts/{Path(path).name}", overwrite=True)
    copies = sorted(tf.io.gfile.glob(f"{root}/texts/*"))
    build(copies, vocabulary, f"{root}/beam", runner=BeamRunner)
    build(copies, vocabulary, f"{root}/local")
    assert digests(f"{root}/beam") == digests(f"{root}/local")


def test_a_workers_error_is_extracted_from_the_traceback_of_another_process():
    text = """Job failed: Error received from SDK harness: Traceback (most recent call last):
      File "text_files.py", line 90, in _decode
    albert_tf.errors.AlbertError: a.txt:2: not UTF-8; convert it.

    During handling of the above exception, another exception occurred:
    albert_tf.errors.AlbertError: a.txt:2: not UTF-8; convert it. [while running 'tokenize']

    """
    error = beam_runner._as_albert_error(RuntimeError(text), "tokenize")
    assert type(error) is AlbertError
    assert str(error) == "a.txt:2: not UTF-8; convert it."
    error = beam_runner._as_albert_error(RuntimeError("Traceback\nMemoryError: no"), "build")
    assert type(error) is StoppedError
    assert "build failed (MemoryError: no); the same command continues it." in str(error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam_options=--runner=Donkey"], "--beam_options: Unexpected pipeline runner: Donkey"),
        (["--beam_options=--direct_num_workers=x"], "argument --direct_num_workers: invalid int"),
        (["--beam_options='--runner"], "--beam_options is not a command line: No closing"),
        (["--beam_options=", "--num_workers=2"], "--num_workers would be ignored: --beam_options"),
    ],
)
def test_wrong_options_are_reported_before_anything_is_written(
    tmp_path, text, vocabulary, run_script, arguments, message
):
    result = run_script(
        create_pretraining_data,
        f"--input_file={text}",
        f"--vocab_file={vocabulary}",
        f"--output_dir={tmp_path / 'out'}",
        *arguments,
    )
    assert result.returncode == 1
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("error: ")
    assert re.search(message, sentence)
    assert not (tmp_path / "out").exists()


def test_a_missing_beam_is_reported_for_its_runner_only(
    tmp_path, text, vocabulary, run_script, monkeypatch
):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "albert_tf.data_prep.beam_runner")
    given = f"--input_file={text}", f"--vocab_file={vocabulary}", "--dupe_factor=1"
    run_script(create_pretraining_data, f"--output_dir={tmp_path}/local", *given).ok()
    result = run_script(
        create_pretraining_data, f"--output_dir={tmp_path}/beam", *given, "--beam_options="
    )
    assert result.returncode == 1
    assert "pip install apache-beam" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_workers_in_other_processes_build_the_same(tmp_path, texts, vocabulary):
    runner = functools.partial(BeamRunner, beam_options=TWO_PROCESSES)
    build(texts, vocabulary, tmp_path / "beam", runner=runner)
    build(texts, vocabulary, tmp_path / "local")
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")


@pytest.mark.slow
def test_a_worker_that_does_not_share_the_file_system_says_so(texts, vocabulary):
    # Files under ram:// belong to one process, like files on another machine's disk.
    runner = functools.partial(BeamRunner, beam_options=TWO_PROCESSES)
    with pytest.raises(
        AlbertError, match=r"The worker on .* does not see ram://own/out/_build; all"
    ):
        build(texts, vocabulary, "ram://own/out", runner=runner)
